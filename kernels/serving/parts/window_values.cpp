#include "kernels/serving/parts/window_values.h"

#include <algorithm>
#include <set>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/serving/parts/cache_entry.h"
#include "kernels/serving/parts/compress_tables.h"

namespace tessera::kernels::serving {
namespace {

std::string range(int64_t last) {
  return "0 .. " + std::to_string(last);
}

/// The fields of a plan row that name what `need` looks for.
struct PlanRow {
  const Call& c;
  const char* plan;
  int64_t row, columns;

  int64_t operator[](int64_t field) const {
    return integer_at(c.given(plan), row * columns + field);
  }
  void need(bool condition, int64_t field, const std::string& expected) const {
    c.need(condition, plan, out_of_range(plan), expected,
           std::to_string((*this)[field]) + " at " + to_string(Dims{row, field}));
  }
  /// Requires `count` slots from that of a field on.
  void need_slots(int64_t field, int64_t count) const {
    const int64_t slots = c["slots"], first = (*this)[field];
    if (count > 0) need(first >= 0 && first <= slots - count, field, range(slots - count));
  }
};

/// Requires the slots of a window whose first `from_state` slots come from the state.
void require_slots(const PlanRow& row, int64_t from_state) {
  if (row.c["ratio"] == 128) return row.need_slots(4, from_state);
  if (row[1] >= 4) row.need_slots(3, std::min<int64_t>(from_state, 4));
  row.need_slots(4, from_state - 4);
}

}  // namespace

void require_windows(const Call& c) {
  const int64_t ratio = c["ratio"], channels = c["D"], parts = ratio == 4 ? 4 : 2;
  c.need(channels >= 128 && channels % 128 == 0, "ape", "argument 'ape' has the wrong shape",
         "columns that are a multiple of 128", to_string(c.given("ape")));
  c.need(channels <= 1024, "ape", "so many channels are not supported", "at most 1024",
         std::to_string(channels), ErrorKind::unsupported);
  c.need(c["W"] == window_slots(ratio), "ape", "argument 'ape' has the wrong shape",
         std::to_string(window_slots(ratio)) + " rows for ratio " + std::to_string(ratio),
         to_string(c.given("ape")));
  c.need(c["L"] == parts * channels, "x", "argument 'x' has the wrong shape",
         std::to_string(parts) + " x " + std::to_string(channels) + " columns for ratio " +
             std::to_string(ratio),
         to_string(c.given("x")));
  require_state(c);
}

void require_state(const Call& c) {
  const DType state = c.dtype("state");
  c.need(state == DType::f32 || state == c.dtype("x"), "state",
         "argument 'state' has the wrong dtype", "f32, or that of x", to_string(c.given("state")));
}

void require_planned_windows(const Call& c) {
  if (!values_are_checked(c.given("plan"))) return;
  const int64_t slots = window_slots(c["ratio"]), rows = c["N"];
  for (int64_t i = 0; i < c["C"]; ++i) {
    const PlanRow row{c, "plan", i, 8};
    if (row[0] == -1) continue;
    row.need(row[1] >= 0, 1, "a position");
    row.need(row[2] >= 0 && row[2] <= slots, 2, range(slots));
    const int64_t absent = slots == 8 && row[1] < 4 ? 4 : 0;
    const int64_t before = std::max<int64_t>(slots - std::max(row[2], absent), 1) - 1;
    row.need(row[0] >= before && row[0] < rows, 0,
             "-1, or " + std::to_string(before) + " .. " + std::to_string(rows - 1));
    require_slots(row, row[2]);
  }
}

void require_planned_tokens(const Call& c) {
  if (!values_are_checked(c.given("plan"))) return;
  const int64_t ratio = c["ratio"], rows = c["B"], slots = c["slots"];
  std::set<int64_t> seen;
  for (int64_t i = 0; i < rows; ++i) {
    const PlanRow row{c, "plan", i, 8};
    if (row[0] == -1) continue;
    row.need(row[0] >= 0 && row[0] < rows, 0, "-1, or " + range(rows - 1));
    row.need(row[1] >= 0, 1, "a position");
    const int64_t own = row[4] + row[1] % ratio;
    row.need(row[4] >= 0 && own < slots, 4, range(slots - 1 - row[1] % ratio));
    row.need(seen.insert(own).second, 4, "the slot of one token");
    if (row[1] % ratio == ratio - 1) require_slots(row, window_slots(ratio) - 1);
  }
}

void require_planned_writes(const Call& c) {
  if (!values_are_checked(c.given("write_plan"))) return;
  const int64_t rows = c["N"], slots = c["slots"];
  std::set<int64_t> seen;
  for (int64_t i = 0; i < c["Y"]; ++i) {
    const PlanRow row{c, "write_plan", i, 2};
    if (row[0] == -1 && row[1] == -1) continue;
    row.need(row[0] >= 0 && row[0] < rows, 0, "-1, or " + range(rows - 1));
    row.need(row[1] >= 0 && row[1] < slots, 1, "-1, or " + range(slots - 1));
    row.need(seen.insert(row[1]).second, 1, "each slot once");
  }
}

void require_places(const Call& c) {
  const TensorView& plan = c.given("plan");
  if (!values_are_checked(plan)) return;
  const int64_t ratio = c["ratio"];
  const int64_t places = cache_slots(c);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < plan.shape[0]; ++i) {
    const PlanRow row{c, "plan", i, 8};
    if (row[0] == -1) continue;
    c.need(row[7] == c["page_size"], "plan", kOtherPages,
           std::to_string(c["page_size"]) + ", the page_size of this call",
           std::to_string(row[7]) + " at " + to_string(Dims{i, 7}));
    if (row[1] % ratio != ratio - 1) continue;
    const int64_t position = row[1] / ratio * ratio;
    c.need(position < c["angles"], "cos_sin", kNoAngle,
           "a row of position " + std::to_string(position), std::to_string(c["angles"]) + " rows");
    if (row[5] == -1) continue;
    row.need(row[5] >= 0 && row[5] < places, 5, "-1, or " + range(places - 1));
    row.need(seen.insert(row[5]).second, 5, "a location of one entry");
  }
}

}  // namespace tessera::kernels::serving
