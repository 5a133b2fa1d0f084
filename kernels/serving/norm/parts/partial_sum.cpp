#include "kernels/serving/norm/parts/partial_sum.h"

#include <optional>

#include "kernels/signature/scale_layout.h"

namespace tessera::kernels::serving {

namespace {

constexpr int64_t kColumns = 32;  // of a block
constexpr int kThreads = 256;

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
    if (tile) {
      k.serial(0, min(count, i32(kPartials)),
               [&](Value part) { sum += (*tile)(part, k.thread()); });
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
