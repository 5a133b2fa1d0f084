// Tensor copies on a GPU, bit for bit against the executor.

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "runtime/driver/device.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/product_kernel.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_copy_kernel.h"

namespace tessera {
namespace {

using test::Boxes;
using test::DeviceTensor;
using test::HostTensor;
using test::StagedProduct;

void check_boxes(const Boxes& boxes) {
  INFO(boxes.text());
  const HostTensor x = test::boxes_input(boxes);
  HostTensor y = test::boxes_output(boxes);
  DeviceTensor on_x(x, Device::cuda(0)), on_y(y, Device::cuda(0));
  kernels::jit::run(test::boxes_kernel(boxes), std::vector<TensorView>{on_x.view(), on_y.view()},
                    {}, nullptr);
  on_y.download(y);
  int64_t wrong = 0;
  for (int64_t i = 0; i < y.size(); ++i) wrong += y.value(i) != test::boxes_value(boxes, x, i);
  CHECK(wrong == 0);
}

void check_product(const StagedProduct& p,
                   ir::Kernel (*kernel)(const StagedProduct&) = test::staged_product) {
  INFO(p.text());
  const HostTensor a = test::random_tensor(DType::bf16, {p.m, p.depth}, test::Values::normal, 1);
  const HostTensor b = test::random_tensor(DType::bf16, {p.n, p.depth}, test::Values::normal, 2);
  HostTensor c(DType::f32, {p.m, p.n}), want(DType::f32, {p.m, p.n});
  DeviceTensor on_a(a, Device::cuda(0)), on_b(b, Device::cuda(0)), on_c(c, Device::cuda(0));
  kernels::jit::run(kernel(p), std::vector<TensorView>{on_a.view(), on_b.view(), on_c.view()}, {},
                    nullptr);
  on_c.download(c);
  const codegen::cpu::Executable executable(codegen::lower(kernel(p), test::kSm90a));
  const codegen::cpu::Argument arguments[] = {{.tensor = a.view()},    {.tensor = b.view()},
                                              {.tensor = want.view()}, {.integer = p.m},
                                              {.integer = p.n},        {.integer = p.depth}};
  executable.run(arguments, {.traps = true, .arithmetic = codegen::cpu::Arithmetic::target});
  CHECK(c.raw() == want.raw());
}

}  // namespace

TEST_CASE("boxes of a tensor arrive on the GPU, with zeros outside", "[gpu][tensor_copy]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::e4m3, DType::e5m2,
                            DType::i8, DType::i32, DType::i64}) {
    const int64_t piece = 128 / bits(dtype);
    Boxes boxes;
    boxes.dtype = dtype;
    boxes.shape = {20, 5 * piece};
    boxes.box = {8, 2 * piece};
    check_boxes(boxes);
    boxes.first = {-3, 4 * piece};
    check_boxes(boxes);
    boxes.first = {100, 0};
    check_boxes(boxes);
  }
  Boxes deep;
  deep.shape = {5, 3, 2, 4, 16};
  deep.box = {1, 2, 2, 2, 8};
  deep.first = {0, -1, 1, 0, 8};
  check_boxes(deep);
  Boxes flat;
  flat.shape = {200};
  flat.box = {64};
  flat.first = {0};
  check_boxes(flat);
}

TEST_CASE("products of operands by tensor copies have the executor's bits", "[gpu][tensor_copy]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  if (runtime::device_info(0).major != 9) TESSERA_SKIP("the GPU is no sm_90");
  for (const int64_t step : {16, 32, 64, 128}) {
    for (const int stages : {1, 2, 4}) {
      StagedProduct p;
      p.instruction = ir::Instruction::wgmma;
      p.step = step;
      p.depth = 5 * step;
      p.stages = stages;
      check_product(p);
      check_product(p, test::product_by_roles);
      if (step == 128 && stages == 4) continue;  // 240 KiB of shared memory with more rows
      p.is_ragged = true;
      p.m = 130;
      p.n = 70;
      p.tile_rows = 128;
      p.threads = 256;
      check_product(p);
    }
  }
}

TEST_CASE("a launch plan makes the maps of new addresses", "[gpu][tensor_copy]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  const Boxes boxes;
  const HostTensor x = test::boxes_input(boxes);
  HostTensor y = test::boxes_output(boxes), zeros(boxes.dtype, Dims(boxes.shape));
  DeviceTensor on_x(zeros, Device::cuda(0)), on_y(y, Device::cuda(0));
  DeviceTensor other_x(x, Device::cuda(0)), other_y(y, Device::cuda(0));
  const kernels::jit::Function function(test::boxes_kernel(boxes));
  const std::vector<TensorView> views = {on_x.view(), on_y.view()};
  const auto again = kernels::jit::plan(views, [&] { function(views, {}, nullptr); });
  void* const data[] = {other_x.view().data, other_y.view().data};
  again(data, nullptr);
  other_y.download(y);
  for (int64_t i = 0; i < y.size(); ++i) {
    REQUIRE(y.value(i) == test::boxes_value(boxes, x, i));
  }
}

}  // namespace tessera
