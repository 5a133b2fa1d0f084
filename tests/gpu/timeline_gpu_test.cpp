// Marks on a GPU: the events that the executor notes, in order and in cycles.

#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/run_kernel.h"

namespace tessera {
namespace {

using dsl::Builder;
using dsl::Value;
using kernels::jit::Timeline;
using kernels::jit::TimelineScope;
using test::DeviceTensor;
using test::HostTensor;

/// y = the sum of tiles of x, by a warp that loads and four that add.
ir::Kernel running_sum(int tiles) {
  Builder k("running_sum");
  auto x = k.input("x", DType::f32, {tiles, 32, 64});
  auto y = k.output("y", DType::f32, {2, 32, 64});
  auto at = k.launch({2}, {.threads = 128});
  auto tile = k.shared(DType::f32, {32, 64}, "tile");
  auto sum = k.fragment(DType::f32, {32, 64}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, tiles, {.stages = 2, .producer = true}, [&](Value t) {
    k.mark("load", [&] { k.copy(x.tile({t, 0, 0}, {1, 32, 64}), tile); });
    k.mark("add", [&] {
      k.parallel({32, 64}, [&](Value r, Value c) { sum(r, c) += tile(r, c); });
    });
  });
  k.mark("store", [&] { k.copy(sum, y.tile({at.x, 0, 0}, {1, 32, 64})); });
  return k.finish();
}

Timeline run(int tiles, Device device) {
  HostTensor x = test::iota(DType::f32, {tiles, 32, 64}), y(DType::f32, {2, 32, 64});
  const kernels::jit::Function function(running_sum(tiles));
  const TimelineScope scope(1);
  if (device.is_cuda()) {
    const DeviceTensor on_x(x, device), on_y(y, device);
    for (int i = 0; i < 2; ++i) {
      function(std::vector<TensorView>{on_x.view(), on_y.view()}, {}, nullptr);
    }
    on_y.download(y);
  } else {
    function(std::vector<TensorView>{x.view(), y.view()}, {}, nullptr);
  }
  CHECK(y.value(2048 + 65) > 0);
  return scope.timelines().back();
}

}  // namespace

TEST_CASE("a GPU notes the marks that the executor notes, in order", "[gpu][timeline]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const Timeline on_gpu = run(5, Device::cuda(0)), on_cpu = run(5, Device::cpu());
  CHECK(on_gpu.unit == "cycles");
  CHECK(on_gpu.marks == on_cpu.marks);
  REQUIRE(on_gpu.rows.size() == on_cpu.rows.size());
  for (size_t i = 0; i < on_gpu.rows.size(); ++i) {
    const Timeline::Row &row = on_gpu.rows[i], &expected = on_cpu.rows[i];
    CAPTURE(i, row.role);
    CHECK(row.role == expected.role);
    CHECK(row.dropped == 0);
    REQUIRE(row.bars.size() == expected.bars.size());
    int64_t before = 0;
    for (size_t b = 0; b < row.bars.size(); ++b) {
      CHECK(row.bars[b].mark == expected.bars[b].mark);
      CHECK(row.bars[b].depth == expected.bars[b].depth);
      CHECK(row.bars[b].begin >= before);
      CHECK(row.bars[b].end >= row.bars[b].begin);
      before = row.bars[b].begin;
    }
  }
}

TEST_CASE("a GPU counts the marks that do not fit", "[gpu][timeline]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const Timeline timeline = run(400, Device::cuda(0));
  for (const Timeline::Row& row : timeline.rows) {
    CHECK(row.dropped == 2 * 2 * 400 + (row.role == "load" ? 0 : 2) - 1023);
  }
}

}  // namespace tessera
