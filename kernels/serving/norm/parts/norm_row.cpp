#include "kernels/serving/norm/parts/norm_row.h"

#include <algorithm>

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kMaxThreads = 256;  // 512 lanes, two per thread
constexpr int64_t kGroup = 16;        // threads of 32 lanes

}  // namespace

RowTile pick_row_tile(int64_t hidden, bool shares_blocks) {
  const int64_t runs = hidden / kRowRun;
  const int64_t threads = std::min(kMaxThreads, (runs + kWarp - 1) / kWarp * kWarp);
  const int64_t steps = (runs + threads - 1) / threads;
  return {threads, steps, shares_blocks ? kMaxThreads / threads : 1, runs != threads * steps};
}

NormRow::NormRow(Builder& k, int64_t hidden, const RowTile& tile)
    : k_(k), hidden_(hidden), tile_(tile) {
  row_ = k.let("row_of_block", k.thread() / tile.threads);
  thread_ = k.let("thread_of_row", k.thread() % tile.threads);
}

void NormRow::in_row(int64_t step, const std::function<void(const Value&)>& body) const {
  auto column = k_.let("column", thread_ * kRowRun + step * (kMaxThreads * kRowRun));
  if (tile_.ragged) {
    k_.if_(column < hidden_, [&] { body(column); });
  } else {
    body(column);
  }
}

void NormRow::load(const Ref& from, const Value& column, const Ref& run, int64_t width) const {
  k_.unrolled(kRowRun / width, [&](Value piece) {
    k_.vectorized(width, [&](Value i) {
      auto at = piece * width + i;
      run(at) = from(column + at).unchecked();
    });
  });
}

void NormRow::store(const Ref& run, const Ref& to, const Value& column, int64_t width) const {
  k_.unrolled(kRowRun / width, [&](Value piece) {
    k_.vectorized(width, [&](Value i) {
      auto at = piece * width + i;
      to(column + at).unchecked() = cast(to.dtype(), run(at));
    });
  });
}

Ref NormRow::local(DType dtype, const char* name) const {
  return k_.local(dtype, {tile_.steps, kRowRun}, name);
}

void NormRow::clear(const Ref& values) const {
  k_.unrolled(tile_.steps, [&](Value step) {
    k_.unrolled(kRowRun, [&](Value i) { values(step, i) = cast(values.dtype(), 0.0f); });
  });
}

Value NormRow::sum(const Factors& factors) const {
  constexpr int64_t kQuad = kRowRun / 2;
  auto even = k_.var(DType::f32, 0.0f, "even_lane"), odd = k_.var(DType::f32, 0.0f, "odd_lane");
  for (int64_t step = 0; step < tile_.steps; ++step) {
    k_.unrolled(kQuad, [&](Value i) {
      const auto [a, b] = factors(step, i);
      even = fma(a, b, even);
      const auto [c, d] = factors(step, i + kQuad);
      odd = fma(c, d, odd);
    });
  }
  auto total = k_.var(DType::f32, even + odd, "group_sum");
  for (const int distance : {1, 2, 4, 8}) total += k_.shuffle_xor(total, distance);
  if (tile_.threads == kWarp) return k_.let("row_sum", total + k_.shuffle_xor(total, kGroup));
  const int64_t groups = tile_.threads / kGroup;
  auto exchange = k_.shared(DType::f32, {tile_.rows, groups}, "group_sums");
  k_.if_(thread_ % kGroup == 0, [&] { exchange(row_, thread_ / kGroup) = total; });
  auto sum = k_.var(DType::f32, exchange(row_, 0), "sum");
  k_.unrolled(groups - 1, [&](Value group) { sum += exchange(row_, group + 1); });
  return k_.let("row_sum", sum);
}

}  // namespace tessera::kernels::serving
