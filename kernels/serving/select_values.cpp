#include "kernels/serving/select_values.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "kernels/value_check.h"

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
  if (c.has("lengths")) require_values(c.check(), "lengths", c.given("lengths"), 0, columns);
  const bool has_starts = c.has("starts") && values_are_checked(c.given("starts"));
  for (int64_t b = 0; has_starts && b < c["B"]; ++b) {
    const int64_t start = integer_at(c.given("starts"), b);
    const int64_t end = c.has("lengths") ? integer_at(c.given("lengths"), b) : columns;
    c.need(start >= 0 && start <= end, "starts", out_of_range("starts"),
           "0 .. " + std::to_string(end), std::to_string(start) + place(b));
  }
}

}  // namespace tessera::kernels::serving
