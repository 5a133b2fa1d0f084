#include "kernels/serving/parts/select_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::serving {
namespace {

std::string place(int64_t row) {
  return " at " + to_string(Dims{row});
}

void require_plan(const Call& c) {
  const TensorView& plan = c.given("plan");
  if (!values_are_checked(plan)) return;
  const int64_t rows = c["B"];
  std::vector<bool> seen(static_cast<size_t>(rows), false);
  const int64_t count = integer_at(plan, 1);
  c.need(count >= 0 && count <= rows, "plan", out_of_range("plan"),
         "0 .. " + std::to_string(rows) + " rows", std::to_string(count) + " at [0, 1]");
  for (int64_t i = 1; i <= count; ++i) {
    const int64_t row = integer_at(plan, i * 2);
    const bool is_new = row >= 0 && row < rows && !seen[static_cast<size_t>(row)];
    c.need(is_new, "plan", out_of_range("plan"),
           "0 .. " + std::to_string(rows - 1) + ", each row once",
           std::to_string(row) + " at " + to_string(Dims{i, 0}));
    seen[static_cast<size_t>(row)] = true;
  }
}

/// A score as it ranks: NaN is -inf.
float score_at(const TensorView& scores, int64_t row, int64_t column) {
  const int64_t element = row * scores.strides[0] + column;
  float score = 0;
  if (scores.dtype == DType::f32) {
    score = static_cast<const float*>(scores.data)[element];
  } else {
    const uint32_t bits = uint32_t{static_cast<const uint16_t*>(scores.data)[element]} << 16;
    std::memcpy(&score, &bits, sizeof(score));
  }
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

/// The columns that are chosen from start .. end - 1, in any order.
std::vector<int64_t> chosen_columns(const Call& c, int64_t row, int64_t start, int64_t end) {
  std::vector<int64_t> columns(static_cast<size_t>(end - start));
  std::iota(columns.begin(), columns.end(), start);
  if (std::ssize(columns) <= c["topk"]) return columns;
  const TensorView& scores = c.given("scores");
  const auto is_better = [&](int64_t a, int64_t b) {
    const float of_a = score_at(scores, row, a), of_b = score_at(scores, row, b);
    return of_a > of_b || (of_a == of_b && a < b);
  };
  std::nth_element(columns.begin(), columns.begin() + c["topk"], columns.end(), is_better);
  columns.resize(static_cast<size_t>(c["topk"]));
  return columns;
}

void require_pages(const Call& c, int64_t row, int64_t start, int64_t end) {
  const TensorView& table = c.given("page_table");
  if (!c.has("page_table") || !values_are_checked(table)) return;
  const bool has_rows = c.find("table_row").has_value() && c.has("table_row");
  const int64_t of_table = has_rows ? integer_at(c.given("table_row"), row) : row;
  const int64_t size = c["page_size"], most = INT32_MAX / size, pages = c["Q"];
  for (const int64_t column : chosen_columns(c, row, start, end)) {
    const int64_t raw = c.flag("relative") ? column - start : column;
    c.need(raw / size < pages, "page_table", kNoPage, "a page of column " + std::to_string(raw),
           std::to_string(pages) + " columns");
    const int64_t page = integer_at(table, of_table * pages + raw / size);
    c.need(page <= most, "page_table", out_of_range("page_table"),
           "at most " + std::to_string(most) + ", or -1",
           std::to_string(page) + " at " + to_string(Dims{of_table, raw / size}));
  }
}

}  // namespace

void require_page_size(const Call& c) {
  const int64_t size = c["page_size"];
  c.need(size >= 1 && size <= 1 << 30 && std::has_single_bit(static_cast<uint64_t>(size)),
         "page_size", "parameter 'page_size' has a wrong value", "a power of two up to 2^30",
         std::to_string(size));
}

void require_ranges(const Call& c) {
  const int64_t columns = c["L"];
  if (c.has("plan")) require_plan(c);
  if (c.has("table_row"))
    require_values(c.check(), "table_row", c.given("table_row"), 0, c["R"] - 1);
  if (c.has("lengths")) require_values(c.check(), "lengths", c.given("lengths"), 0, columns);
  if (!values_are_checked(c.given("scores"))) return;
  for (int64_t b = 0; b < c["B"]; ++b) {
    const int64_t start = c.has("starts") ? integer_at(c.given("starts"), b) : 0;
    const int64_t end = c.has("lengths") ? integer_at(c.given("lengths"), b) : columns;
    c.need(start >= 0 && start <= end, "starts", out_of_range("starts"),
           "0 .. " + std::to_string(end), std::to_string(start) + place(b));
    require_pages(c, b, start, end);
  }
}

}  // namespace tessera::kernels::serving
