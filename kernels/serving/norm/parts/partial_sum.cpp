#include "kernels/serving/norm/parts/partial_sum.h"

#include <optional>

#include "kernels/signature/scale_layout.h"

namespace tessera::kernels::serving {

namespace {

constexpr int64_t kColumns = 32;  // of a block
constexpr int kThreads = 256;
constexpr int64_t kAtOnce = 12;  // partials that a thread loads before it adds them
static_assert(kPartials % kAtOnce == 0);

}  // namespace

int64_t rows_per_partial(int64_t rows) {
  return num_blocks(rows, kPartials);
}

int64_t num_partials(int64_t rows) {
  return rows == 0 ? 0 : num_blocks(rows, rows_per_partial(rows));
}

ir::Kernel build_partial_sum(const std::string& name, const std::string& result,
                             const PartialSumSpec& s) {
  using namespace dsl;
  Builder k(name);
  Value count;
  std::optional<Ref> partials;
  if (s.has_partials) {
    count = k.dim("num_partials");
    partials = k.input("partials", DType::f32, {count, s.columns});
  }
  auto out = k.output(result, s.dtype, {s.columns}, {.align = bytes(s.dtype)});
  auto at = k.launch({ceil_div(i32(s.columns), kColumns)}, {.threads = kThreads});
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  std::optional<Ref> tile;
  if (partials) {
    tile = k.shared(DType::f32, {kPartials, kColumns}, "tile");
    k.copy(partials->tile({0, at.x * kColumns}, {kPartials, kColumns}), *tile);
  }
  auto column = k.let("column", at.x * kColumns + k.thread());
  k.if_(k.thread() < kColumns && column < s.columns, [&] {
    auto sum = k.var(DType::f32, 0.0f, "sum");
    if (tile) {  // rows beyond the partials are +0
      k.serial(0, kPartials / kAtOnce, [&](Value round) {
        auto loaded = k.local(DType::f32, {kAtOnce}, "loaded");
        k.unrolled(kAtOnce, [&](Value i) { loaded(i) = (*tile)(round * kAtOnce + i, k.thread()); });
        k.unrolled(kAtOnce, [&](Value i) { sum += loaded(i); });
      });
    }
    if (s.accumulates) {
      Value before = out(column);
      out(column) = cast(s.dtype, f32(before) + sum);
    } else {
      out(column) = cast(s.dtype, sum);
    }
  });
  return k.finish();
}

}  // namespace tessera::kernels::serving
