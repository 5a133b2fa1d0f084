#include "kernels/serving/parts/select_row.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "kernels/checks/value_check.h"
#include "kernels/moe/parts/best_expert.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

const char* name_of(SelectFrom from) {
  if (from == SelectFrom::scores) return "topk_select";
  return from == SelectFrom::maxima ? "candidate_blocks" : "topk_of_blocks";
}

}  // namespace

SelectRow::SelectRow(const SelectSpec& s)
    : s_(s),
      dtype_(s.score_bytes == 4 ? DType::f32 : DType::bf16),
      vector_(s.vector()),
      k_(name_of(s.from)) {}

void SelectRow::declare() {
  rows_ = k_.dim("rows");
  const int64_t multiple = s_.is_aligned ? 16 / s_.score_bytes : 1;
  cols_ = k_.dim("cols", {.multiple_of = multiple});
  auto stride = k_.stride("scores_stride", {.multiple_of = multiple});
  scores_ = k_.input("scores", dtype_, {*rows_, *cols_},
                     {.strides = {stride, 1}, .align = multiple * s_.score_bytes});
  if (s_.has_lengths) lengths_ = k_.input("lengths", DType::i32, {*rows_}, {.align = 4});
  if (s_.has_starts) starts_ = k_.input("starts", DType::i32, {*rows_}, {.align = 4});
  if (s_.has_pages) {
    pages_ = k_.dim("pages");
    tables_ = k_.dim("tables");
    auto stride_of_table = k_.stride("page_table_stride");
    page_table_ = k_.input("page_table", DType::i32, {*tables_, *pages_},
                           {.strides = {stride_of_table, 1}, .align = 4});
    if (s_.has_table_rows) {
      table_row_ = k_.input("table_row", DType::i32, {*rows_}, {.align = 4});
    }
  }
  if (s_.from == SelectFrom::blocks) {
    if (s_.is_relative) k_start_ = k_.input("k_start", DType::i32, {*rows_}, {.align = 4});
    auto of_row = k_.dim("blocks_of_row"), stride_of_blocks = k_.stride("blocks_stride");
    blocks_ = k_.input("blocks", DType::i32, {*rows_, of_row},
                       {.strides = {stride_of_blocks, 1}, .align = 4});
  }
  indices_ = k_.output("indices", DType::i32, {*rows_, s_.outputs()}, {.align = 4});
  if (s_.saves_raw) {
    raw_indices_ = k_.output("raw_indices", DType::i32, {*rows_, s_.topk}, {.align = 4});
  }
  if (s_.saves_values) {
    values_ = k_.output("values", dtype_, {*rows_, s_.topk}, {.align = s_.score_bytes});
  }
  if (s_.has_pages) {
    page_shift_ = k_.scalar("page_shift", DType::i32);
    rows_of_table_ = k_.scalar("rows_of_table", DType::i32);
  }
}

void SelectRow::find_range() {
  if (k_start_) first_key_ = k_.let("first_key", max((*k_start_)(row_), 0));
  Value start = i32(0), end = *cols_;
  if (s_.has_starts) start = k_.let("given_start", (*starts_)(row_));
  if (s_.has_lengths) end = k_.let("given_end", (*lengths_)(row_));
  if (s_.has_starts) {
    report_unless(start >= 0 && start <= end && start <= *cols_, "starts");
    start = min(max(start, 0), *cols_);
  }
  if (s_.has_lengths) {
    report_unless(end >= 0 && end <= *cols_, "lengths");
    end = min(max(end, start), *cols_);
  }
  if (s_.has_starts && !s_.has_lengths) end = max(end, start);
  if (s_.from == SelectFrom::maxima) {
    const int32_t others = (1 << s_.block_shift) - 1;
    last_block_ = k_.let("last_block", ((end + others) >> i32(s_.block_shift)) - 1);
    end = s_.takes_last ? i32(0) : max(last_block_, 0);
  }
  start_ = k_.let("start", start);
  end_ = k_.let("end", end);
}

void SelectRow::report_unless(const Value& holds, const char* tensor) {
  if (!s_.has_known_range) k_.report_unless(holds, out_of_range(tensor));
}

Value SelectRow::score_of(const Value& column) {
  if (s_.from != SelectFrom::maxima) return (*scores_)(row_, column).unchecked();
  const int64_t size = int64_t{1} << s_.block_shift;
  const int64_t width = s_.is_aligned ? std::min<int64_t>(size, 16 / s_.score_bytes) : 1;
  auto first = k_.let("first_of_block", column * i32(size));
  auto part = k_.local(dtype_, {width}, "part_of_block");
  auto best = k_.var(DType::f32, std::numeric_limits<float>::quiet_NaN(), "best_of_block");
  const auto take = [&](Value v) {
    k_.vectorized(width,
                  [&](Value i) { part(i) = (*scores_)(row_, first + v * width + i).unchecked(); });
    k_.unrolled(width, [&](Value i) { best = max(best, f32(part(i))); });
  };
  // A thread has many blocks: the loads of large ones, all written out, would spill.
  if (size / width <= 2) {
    k_.unrolled(size / width, take);
  } else {
    k_.rolled(0, i32(size / width), take);
  }
  return cast(dtype_, best);
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
    k_.if_(is_inside(at + i), [&] { to(place + i) = score_of(at + i); });
  });
}

void SelectRow::load_chunk(const Value& first, const Ref& to) {
  auto load = [&](const Value& at, const Value& place) {
    auto read = [&](Value i) { to(place + i) = score_of(at + i); };
    if (s_.is_aligned && s_.from != SelectFrom::maxima) {
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
