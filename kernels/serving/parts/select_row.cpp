#include "kernels/serving/parts/select_row.h"

#include <functional>
#include <limits>

#include "kernels/checks/value_check.h"
#include "kernels/moe/parts/best_expert.h"

namespace tessera::kernels::serving {

using namespace dsl;

SelectRow::SelectRow(const SelectSpec& s)
    : s_(s),
      dtype_(s.score_bytes == 4 ? DType::f32 : DType::bf16),
      vector_(s.vector()),
      k_("topk_select") {}

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

Value SelectRow::column(const Value& first, const Value& vector) {
  return first + (vector * s_.threads + k_.thread()) * vector_;
}

Value SelectRow::is_inside(const Value& column) {
  return column >= start_ && column < end_;
}

Value SelectRow::key_of(const Value& score) {
  return moe::order_key(k_, moe::rankable(f32(score)));
}

void SelectRow::load_part(int64_t n, const Value& at, const Ref& to, const Value& place) {
  k_.unrolled(n, [&](Value i) {
    to(place + i) = cast(dtype_, std::numeric_limits<float>::quiet_NaN());
    k_.if_(is_inside(at + i), [&] { to(place + i) = (*scores_)(row_, at + i).unchecked(); });
  });
}

void SelectRow::load_chunk(const Value& first, const Ref& to) {
  auto load = [&](const Value& at, const Value& place) {
    auto read = [&](Value i) { to(place + i) = (*scores_)(row_, at + i).unchecked(); };
    if (s_.is_aligned) {
      k_.vectorized(vector_, read);
    } else {
      k_.unrolled(vector_, read);
    }
  };
  auto each_vector = [&](const std::function<void(const Value& at, const Value& place)>& body) {
    k_.unrolled(s_.keys / vector_,
                [&](Value v) { body(k_.let("at", column(first, v)), v * vector_); });
  };
  auto some = [&] {
    each_vector([&](const Value& at, const Value& place) {
      k_.if_else(
          at >= start_ && at + vector_ <= end_, [&] { load(at, place); },
          [&] { load_part(vector_, at, to, place); });
    });
  };
  k_.if_else(
      first >= start_ && first + s_.chunk() <= end_, [&] { each_vector(load); }, some);
}

}  // namespace tessera::kernels::serving
