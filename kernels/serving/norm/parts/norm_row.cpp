#include "kernels/serving/norm/parts/norm_row.h"

#include <algorithm>

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kLanes = 512, kLaneColumns = 4, kGroupLanes = 32;

/// Lanes of a run, threads of a group of lanes, runs in which a thread meets each of its lanes once.
int64_t run_lanes(const RowTile& tile) {
  return tile.run / kLaneColumns;
}
int64_t group_threads(const RowTile& tile) {
  return kGroupLanes / run_lanes(tile);
}
int64_t lane_rounds(const RowTile& tile) {
  return std::min(tile.steps, kLanes / run_lanes(tile) / tile.threads);
}

}  // namespace

RowTile pick_row_tile(int64_t hidden, const RowShape& shape) {
  const int64_t runs = hidden / shape.run;
  const int64_t threads = std::min(shape.max_threads, (runs + kWarp - 1) / kWarp * kWarp);
  const int64_t steps = (runs + threads - 1) / threads;
  const int64_t rows =
      shape.shares_blocks ? std::max<int64_t>(shape.block_threads / threads, 1) : 1;
  return {threads, steps, rows, runs != threads * steps, shape.run};
}

NormRow::NormRow(Builder& k, int64_t hidden, const RowTile& tile)
    : k_(k), hidden_(hidden), tile_(tile) {
  row_ = k.let("row_of_block", k.thread() / tile.threads);
  thread_ = k.let("thread_of_row", k.thread() % tile.threads);
}

Value NormRow::column(int64_t step) const {
  return k_.let("column", thread_ * tile_.run + step * (tile_.threads * tile_.run));
}

void NormRow::in_row(int64_t step, const std::function<void(const Value&)>& body) const {
  auto at = column(step);
  if (is_ragged(step)) {
    k_.if_(at < hidden_, [&] { body(at); });
  } else {
    body(at);
  }
}

void NormRow::load_step(const Ref& from, int64_t step, const Ref& run, int64_t width) const {
  if (!is_ragged(step)) return load(from, column(step), run, width);
  auto number = k_.let("run", min(thread_ + step * tile_.threads, hidden_ / tile_.run - 1));
  load(from, k_.let("inside", number * tile_.run), run, width);
}

void NormRow::load_all(const Ref& from, const Ref& values, int64_t width) const {
  for (int64_t step = 0; step < tile_.steps; ++step) load_step(from, step, values(step), width);
}

void NormRow::load(const Ref& from, const Value& column, const Ref& run, int64_t width) const {
  k_.unrolled(tile_.run / width, [&](Value piece) {
    k_.vectorized(width, [&](Value i) {
      auto at = piece * width + i;
      run(at) = from(column + at).unchecked();
    });
  });
}

void NormRow::store(const Ref& run, const Ref& to, const Value& column, int64_t width) const {
  k_.unrolled(tile_.run / width, [&](Value piece) {
    k_.vectorized(width, [&](Value i) {
      auto at = piece * width + i;
      to(column + at).unchecked() = cast(to.dtype(), run(at));
    });
  });
}

Ref NormRow::local(DType dtype, const char* name) const {
  return k_.local(dtype, {tile_.steps, tile_.run}, name);
}

void NormRow::clear(const Ref& values) const {
  k_.unrolled(tile_.steps, [&](Value step) {
    k_.unrolled(tile_.run, [&](Value i) { values(step, i) = cast(values.dtype(), 0.0f); });
  });
}

NormRow::Lanes NormRow::lanes() const {
  Lanes lanes;
  for (int64_t i = 0; i < lane_rounds(tile_) * run_lanes(tile_); ++i) {
    lanes.push_back(k_.var(DType::f32, 0.0f, "lane_sum"));
  }
  return lanes;
}

void NormRow::add(const Lanes& lanes, int64_t step,
                  const std::function<std::pair<Value, Value>(const Value& i)>& factors) const {
  const int64_t per_run = run_lanes(tile_), first = step % lane_rounds(tile_) * per_run;
  k_.unrolled(kLaneColumns, [&](Value i) {
    for (int64_t lane = 0; lane < per_run; ++lane) {
      const Ref& sum = lanes[static_cast<size_t>(first + lane)];
      const auto [a, b] = factors(i + lane * kLaneColumns);
      sum = fma(a, b, sum);
    }
  });
}

Value NormRow::total(const Lanes& lanes) const {
  const int64_t per_run = run_lanes(tile_), in_group = group_threads(tile_);
  const int64_t rounds = lane_rounds(tile_), of_round = tile_.threads / in_group;
  std::vector<Ref> totals;
  for (int64_t round = 0; round < rounds; ++round) {
    const auto of = [&](int64_t lane) {
      return lanes[static_cast<size_t>(round * per_run + lane)];
    };
    auto total = k_.var(DType::f32, per_run == 1 ? Value(of(0)) : of(0) + of(1), "group_sum");
    for (int64_t distance = 1; distance < in_group; distance *= 2) {
      total += k_.shuffle_xor(total, static_cast<int>(distance));
    }
    totals.push_back(total);
  }
  if (tile_.threads == kWarp) {  // every lane has or gets all groups
    auto sum = k_.var(DType::f32, 0.0f, "sum");
    for (size_t round = 0; round < totals.size(); ++round) {
      const Value own = totals[round];
      Value first = own, second;
      if (of_round == 2) {
        const Value other = k_.shuffle_xor(totals[round], static_cast<int>(in_group));
        first = select(thread_ < in_group, own, other);
        second = select(thread_ < in_group, other, own);
      }
      sum = round == 0 ? first : sum + first;
      if (of_round == 2) sum = sum + second;
    }
    return k_.let("row_sum", sum);
  }
  auto exchange = k_.shared(DType::f32, {tile_.rows, rounds * of_round}, "group_sums");
  k_.if_(thread_ % in_group == 0, [&] {
    for (int64_t round = 0; round < rounds; ++round) {
      exchange(row_, round * of_round + thread_ / in_group) = totals[static_cast<size_t>(round)];
    }
  });
  auto sum = k_.var(DType::f32, exchange(row_, 0), "sum");
  k_.unrolled(rounds * of_round - 1, [&](Value group) { sum += exchange(row_, group + 1); });
  return k_.let("row_sum", sum);
}

Value NormRow::sum(const Factors& factors) const {
  const Lanes sums = lanes();
  for (int64_t step = 0; step < tile_.steps; ++step) {
    const auto of_step = [&] { add(sums, step, [&](const Value& i) { return factors(step, i); }); };
    if (is_ragged(step)) {
      k_.if_(column(step) < hidden_, of_step);
    } else {
      of_step();
    }
  }
  return total(sums);
}

}  // namespace tessera::kernels::serving
