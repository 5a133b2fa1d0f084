#include "kernels/serving/parts/compress_values.h"

#include <algorithm>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/serving/parts/compress_tables.h"

namespace tessera::kernels::serving {
namespace {

/// The table with the slot of a position; the check fails if there is none.
void require_slot(const Call& c, int64_t request, int64_t position) {
  const bool by_page = c.has("state_pages");
  const std::string name = by_page ? "state_pages" : "state_slot";
  const TensorView& table = c.given(name);
  const int64_t column = by_page ? position / c["state_page_size"] : 0;
  const int64_t columns = by_page ? c["S"] : 1;
  const Dims place = by_page ? Dims{request, column} : Dims{request};
  c.need(column < columns, name, "argument '" + name + "' has too few columns",
         "a page of position " + std::to_string(position), std::to_string(columns) + " columns");
  const int64_t base = integer_at(table, request * columns + column), ring = c["ring"];
  const int64_t most = (INT32_MAX - position % ring) / ring;
  c.need(base >= 0 && base <= most, name, out_of_range(name),
         "0 .. " + std::to_string(most) + " where a slot is needed",
         std::to_string(base) + " at " + to_string(place));
}

/// Requires the slots of a window whose first `from_state` slots come from the state.
void require_window(const Call& c, int64_t request, int64_t window, int64_t from_state) {
  const int64_t ratio = c["ratio"], slots = window_slots(ratio);
  if (ratio == 4 && window > 0 && from_state > 0) require_slot(c, request, window * 4 - 4);
  if (from_state > slots - ratio) require_slot(c, request, window * ratio);
  if (!c.has("page_table")) return;
  const int64_t page_size = c["page_size"], column = window / page_size;
  c.need(column < c["Q"], "page_table", kNoLocation, "a page of window " + std::to_string(window),
         std::to_string(c["Q"]) + " columns");
  const int64_t page = integer_at(c.given("page_table"), request * c["Q"] + column);
  const int64_t most = (INT32_MAX - window % page_size) / page_size;
  c.need(page <= most, "page_table", out_of_range("page_table"),
         "at most " + std::to_string(most) + ", or -1",
         std::to_string(page) + " at " + to_string(Dims{request, column}));
}

/// The number of positions below `end` in page tails.
int64_t tails_below(int64_t end, int64_t page) {
  return end / page * 4 + std::max<int64_t>(end % page - (page - 4), 0);
}

}  // namespace

void require_decode_slots(const Call& c) {
  const TensorView& positions = c.given("positions");
  if (!values_are_checked(positions)) return;
  require_values(c.check(), "positions", positions, -1, INT32_MAX);
  const int64_t ratio = c["ratio"];
  for (int64_t b = 0; b < c["B"]; ++b) {
    const int64_t p = integer_at(positions, b);
    if (p < 0) continue;
    require_slot(c, b, p / ratio * ratio);
    if (p % ratio == ratio - 1) require_window(c, b, p / ratio, window_slots(ratio));
  }
}

RequestSize request_size(const Call& c, int64_t start, int64_t tokens) {
  const int64_t ratio = c["ratio"], page = c["state_page_size"], end = start + tokens;
  RequestSize size;
  size.windows = end / ratio - start / ratio;
  const int64_t settled = std::max<int64_t>(end - c["max_rollback"], 0) / ratio * ratio;
  size.kept = std::max<int64_t>(settled - (ratio == 4 ? 4 : 0), 0);
  const int64_t before = std::min(size.kept, end);
  if (page > 0 && ratio == 4 && before > start) {
    size.tails = tails_below(before, page) - tails_below(start, page);
  }
  size.writes = size.tails + end - std::clamp(size.kept, start, end);
  return size;
}

void require_plan_slots(const Call& c) {
  const TensorView &starts = c.given("start"), &rows = c.given("row_start");
  if (!values_are_checked(starts)) return;
  require_values(c.check(), "start", starts, 0, INT32_MAX);
  const int64_t ratio = c["ratio"], slots = window_slots(ratio), page = c["state_page_size"];
  int64_t windows = 0, writes = 0;
  for (int64_t b = 0; b < c["B"]; ++b) {
    const int64_t first = integer_at(rows, b), end = integer_at(rows, b + 1);
    const int64_t start = integer_at(starts, b);
    c.need(b > 0 || first == 0, "row_start", out_of_range("row_start"), "0 at [0]",
           std::to_string(first) + " at [0]");
    c.need(end >= first, "row_start", out_of_range("row_start"),
           "at least " + std::to_string(first),
           std::to_string(end) + " at " + to_string(Dims{b + 1}));
    const int64_t most = INT32_MAX - (end - first);
    c.need(start <= most, "start", out_of_range("start"), "0 .. " + std::to_string(most),
           std::to_string(start) + " at " + to_string(Dims{b}));
    const RequestSize size = request_size(c, start, end - first);
    windows += size.windows;
    writes += size.writes;
    for (int64_t i = 0; i < size.windows; ++i) {
      const int64_t window = start / ratio + i, last = window * ratio + ratio - 1;
      require_window(c, b, window, std::clamp<int64_t>(slots - 1 - (last - start), 0, slots));
    }
    for (int64_t p = start; p < start + end - first; ++p) {
      const bool is_tail = page > 0 && ratio == 4 && p % page >= page - 4;
      if (p >= size.kept || is_tail) require_slot(c, b, p);
    }
  }
  for (const auto& [name, needed] : {std::pair("num_windows", windows), {"num_writes", writes}}) {
    c.need(needed <= c[name], name, std::string("parameter '") + name + "' is too small",
           "at least " + std::to_string(needed), std::to_string(c[name]));
  }
}

}  // namespace tessera::kernels::serving
