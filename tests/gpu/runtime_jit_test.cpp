// Kernels of the language on GPU tensors: the same entry point, the same results as on the CPU.

#include <numeric>
#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "runtime/driver/device.h"
#include "runtime/driver/memory.h"
#include "runtime/image.h"
#include "runtime/nvrtc/target.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"

using namespace tessera;
namespace jit = kernels::jit;

namespace {

/// out[i] = x[i] * factor + offset
ir::Kernel scale_kernel() {
  dsl::Builder k("scale");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows}, {.align = 4});
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto factor = k.scalar("factor", DType::f32);
  auto offset = k.scalar("offset", DType::i32);
  auto at = k.launch({ceil_div(rows, 64)}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {64});
  k.copy(x.tile({at.x * 64}, {64}), tile);
  k.parallel({64},
             [&](dsl::Value i) { tile(i) = tile(i) * factor + dsl::cast(DType::f32, offset); });
  k.copy(tile, out.tile({at.x * 64}, {64}));
  return k.finish();
}

struct DeviceVectors {
  explicit DeviceVectors(int64_t size) : count(size), x(0, size * 4), out(0, size * 4) {
    std::vector<float> values(static_cast<size_t>(size));
    std::iota(values.begin(), values.end(), 1.0F);
    x.upload(values.data(), x.bytes());
    out.fill(0xFF);
  }
  std::vector<TensorView> views() const {
    return {TensorView(x.data(), DType::f32, {count}, Device::cuda(0)),
            TensorView(out.data(), DType::f32, {count}, Device::cuda(0))};
  }
  std::vector<float> result() const {
    std::vector<float> values(static_cast<size_t>(count));
    out.download(values.data(), out.bytes());
    return values;
  }
  int64_t count;
  runtime::DeviceBuffer x, out;
};

/// out[0] = the blocks of the grid, which is one of them for each multiprocessor.
ir::Kernel count_blocks() {
  dsl::Builder k("count_blocks");
  auto out = k.output("out", DType::i32, {1});
  k.launch({k.device_blocks()}, {.threads = 32});
  k.if_(k.thread() == 0, [&] { k.atomic_add(out(0), 1); });
  return k.finish();
}

}  // namespace

TEST_CASE("a persistent kernel has a block for each multiprocessor of its GPU", "[gpu]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  runtime::DeviceBuffer out(0, 4);
  out.fill(0);
  const TensorView views[] = {TensorView(out.data(), DType::i32, {1}, Device::cuda(0))};
  jit::run(count_blocks(), views, {}, nullptr);
  int32_t blocks = 0;
  out.download(&blocks, sizeof blocks);
  CHECK(blocks == runtime::device_info(0).num_sms);
}

TEST_CASE("a kernel of the language runs on GPU tensors of any size with one compile", "[gpu]") {
  if (runtime::num_devices() == 0) TESSERA_SKIP(runtime::why_no_device());
  const jit::Function scale(scale_kernel());
  const std::vector<jit::Scalar> scalars = {0.5F, -3};
  const int64_t before = runtime::Runtime::instance().counters().loads;
  for (const int64_t size : {1, 64, 1000, 100003}) {
    const DeviceVectors v(size);
    const runtime::OwnedStream stream(0);
    scale(v.views(), scalars, stream.handle());
    runtime::synchronize(0, stream.handle());
    const std::vector<float> result = v.result();
    bool right = true;
    for (size_t i = 0; i < result.size(); ++i) {
      right = right && result[i] == 0.5F * static_cast<float>(i + 1) - 3.0F;
    }
    CHECK(right);
  }
  CHECK(runtime::Runtime::instance().counters().loads == before + 1);
}

TEST_CASE("an empty call on the GPU is a no-op", "[gpu]") {
  if (runtime::num_devices() == 0) TESSERA_SKIP(runtime::why_no_device());
  const DeviceVectors v(0);
  const std::vector<jit::Scalar> scalars = {0.0F, 0};
  jit::run(scale_kernel(), v.views(), scalars, nullptr);
  CHECK(v.result().empty());
}

TEST_CASE("GPU arguments are checked like CPU arguments", "[gpu]") {
  if (runtime::num_devices() == 0) TESSERA_SKIP(runtime::why_no_device());
  const DeviceVectors v(8);
  std::vector<TensorView> views = v.views();
  views[1].shape = {7};
  const std::vector<jit::Scalar> scalars = {0.0F, 0};
  try {
    jit::run(scale_kernel(), views, scalars, nullptr);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.argument() == "out");
    CHECK(error.expected() == "extent 8 in dimension 0 = rows (from x dim 0)");
  }
}
