#include "kernels/serving/select_row.h"

#include "kernels/moe/best_expert.h"
#include "kernels/value_check.h"

namespace tessera::kernels::serving {

using namespace dsl;

void SelectRow::declare() {
  rows_ = k_.dim("rows");
  const int64_t multiple = s_.is_aligned ? vector_ : 1;
  cols_ = k_.dim("cols", {.multiple_of = multiple});
  auto stride = k_.stride("scores_stride", {.multiple_of = multiple});
  scores_ = k_.input("scores", dtype_, {*rows_, *cols_},
                     {.strides = {stride, 1}, .align = multiple * s_.score_bytes});
  if (s_.has_lengths) lengths_ = k_.input("lengths", DType::i32, {*rows_});
  if (s_.has_starts) starts_ = k_.input("starts", DType::i32, {*rows_});
  if (s_.has_pages) {
    pages_ = k_.dim("pages");
    page_table_ = k_.input("page_table", DType::i32, {*rows_, *pages_},
                           {.strides = {k_.stride("page_table_stride"), 1}, .align = 4});
  }
  indices_ = k_.output("indices", DType::i32, {*rows_, s_.topk}, {.align = 4});
  if (s_.saves_raw) {
    raw_indices_ = k_.output("raw_indices", DType::i32, {*rows_, s_.topk}, {.align = 4});
  }
  if (s_.saves_values) {
    values_ = k_.output("values", dtype_, {*rows_, s_.topk}, {.align = s_.score_bytes});
  }
  if (s_.has_pages) page_shift_ = k_.scalar("page_shift", DType::i32);
}

void SelectRow::find_range() {
  Value start = i32(0), end = *cols_;
  if (s_.has_starts) start = k_.let("given_start", (*starts_)(row_));
  if (s_.has_lengths) end = k_.let("given_end", (*lengths_)(row_));
  if (s_.has_starts) {
    k_.report_unless(start >= 0 && start <= end && start <= *cols_, out_of_range("starts"));
    start = min(max(start, 0), *cols_);
  }
  if (s_.has_lengths) {
    k_.report_unless(end >= 0 && end <= *cols_, out_of_range("lengths"));
    end = min(max(end, start), *cols_);
  }
  if (s_.has_starts && !s_.has_lengths) end = max(end, start);
  start_ = k_.let("start", start);
  end_ = k_.let("end", end);
}

void SelectRow::share_out() {
  const int64_t unit = 32 * vector_, warps = int64_t{kSelectWarps} * s_.cluster;
  auto base = k_.let("first_vector", start_ / vector_);
  auto units = k_.let("units_of_row", ceil_div(end_ - base * vector_, unit));
  auto part = k_.let("units_of_warp", ceil_div(units, warps));
  Value warp = k_.warp();
  if (s_.cluster > 1) warp = rank_ * kSelectWarps + warp;
  auto first = k_.let("first_unit", warp * part);
  units_ = k_.let("units", max(min(units - first, part), 0));
  first_ = k_.let("vector_of_lane", base + first * 32 + lane_);
  keys_ = k_.local(DType::u32, {s_.keys}, "keys");
}

Value SelectRow::column(const Value& unit) {
  return (first_ + unit * 32) * vector_;
}

Value SelectRow::key_of(const Value& score) {
  return moe::order_key(k_, moe::rankable(f32(score))) ^ cast(DType::u32, kNoKey);
}

void SelectRow::load(const Value& unit, const Value& slot) {
  auto at = column(unit);
  auto all = [&] {
    auto x = k_.local(dtype_, {vector_}, "x");
    auto read = [&](Value i) { x(i) = (*scores_)(row_, at + i).unchecked(); };
    if (s_.is_aligned) {
      k_.vectorized(vector_, read);
    } else {
      k_.unrolled(vector_, read);
    }
    k_.unrolled(vector_, [&](Value i) { (*keys_)(slot * vector_ + i) = key_of(x(i)); });
  };
  auto some = [&] {
    k_.unrolled(vector_, [&](Value i) {
      (*keys_)(slot * vector_ + i) = cast(DType::u32, kNoKey);
      k_.if_(at + i >= start_ && at + i < end_,
             [&] { (*keys_)(slot * vector_ + i) = key_of((*scores_)(row_, at + i).unchecked()); });
    });
  };
  k_.if_else(at >= start_ && at + vector_ <= end_, all, some);
}

void SelectRow::load_units(const Value& first) {
  k_.unrolled(units_held_, [&](Value slot) {
    k_.if_(first + slot < units_, [&] { load(first + slot, slot); });
  });
}

void SelectRow::each_unit(const OfUnit& body) {
  auto held = [&](const Value& first) {
    k_.unrolled(units_held_, [&](Value slot) {
      k_.if_(first + slot < units_, [&] { body(first + slot, slot); });
    });
  };
  if (!s_.streams) return held(i32(0));
  k_.serial(
      0, units_,
      [&](Value first) {
        load_units(first);
        held(first);
      },
      units_held_);
}

void SelectRow::each_key(const std::function<void(const Value& key)>& body) {
  each_unit([&](const Value&, const Value& slot) {
    k_.unrolled(vector_, [&](Value i) { body(k_.let("key", (*keys_)(slot * vector_ + i))); });
  });
}

}  // namespace tessera::kernels::serving
