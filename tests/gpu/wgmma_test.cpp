// Products by wgmma and by mma.sync on a GPU, bit for bit against the executor.

#include "kernels/jit/jit.h"
#include "runtime/driver/device.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/product_kernel.h"

namespace tessera {
namespace {

using test::Product;

/// The kernel on the GPU and on the executor, from the same operands.
void compare(const Product& p, uint64_t seed) {
  INFO(p.text());
  const test::ProductData data = test::random_operands(p, seed);
  test::HostTensor on_gpu = data.y;
  test::DeviceTensor a(data.a, Device::cuda(0)), b(data.b, Device::cuda(0)),
      y(data.y, Device::cuda(0));
  const TensorView views[] = {a.view(), b.view(), y.view()};
  kernels::jit::run(test::product_kernel(p), views, {}, nullptr);
  y.download(on_gpu);
  test::run_product(p, data, test::kSm90a, codegen::cpu::Arithmetic::target);
  CHECK(on_gpu.raw() == data.y.raw());
}

void compare_all(ir::Instruction instruction) {
  uint64_t seed = 1;
  for (const DType dtype :
       {DType::bf16, DType::f16, DType::f32, DType::e4m3, DType::e5m2, DType::i8}) {
    for (const int form : {0, 1, 2, 3, 4, 5, 6, 7}) {
      Product p = test::product_of(dtype, 128, 64, 128);
      p.options.instruction = instruction;
      p.a_by_columns = (form & 1) != 0;
      p.b_by_columns = (form & 2) == 0;
      p.a_in_registers = (form & 4) != 0;
      const bool turned = (p.a_by_columns && !p.a_in_registers) || !p.b_by_columns;
      if (turned && bits(dtype) != 16 && instruction == ir::Instruction::wgmma) continue;
      compare(p, seed++);
      p.threads = 256;
      compare(p, seed++);
    }
    for (const int64_t n : {8, 24, 40, 96, 136, 192, 256, 320}) {
      Product p = test::product_of(dtype, 64, n, 128);
      p.options.instruction = instruction;
      compare(p, seed++);
    }
  }
  Product mixed = test::product_of(DType::e4m3, 64, 64, 256);
  mixed.right_dtype = DType::e5m2;
  mixed.options.instruction = instruction;
  compare(mixed, seed++);
}

bool has_wgmma(std::string& reason) {
  reason = test::why_no_gpu();
  if (!reason.empty()) return false;
  const runtime::DeviceInfo& device = runtime::device_info(0);
  if (device.major != 9) reason = "the GPU is no sm_90";
  return reason.empty();
}

}  // namespace

TEST_CASE("products by wgmma have the executor's bits", "[gpu][wgmma]") {
  std::string reason;
  if (!has_wgmma(reason)) TESSERA_SKIP(reason);
  compare_all(ir::Instruction::wgmma);
}

TEST_CASE("products by mma.sync have the executor's bits", "[gpu][wgmma]") {
  std::string reason;
  if (!has_wgmma(reason)) TESSERA_SKIP(reason);
  compare_all(ir::Instruction::mma);
}

}  // namespace tessera
