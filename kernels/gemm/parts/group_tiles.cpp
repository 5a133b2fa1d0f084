// Tiles are numbered group after group, inside a group down before across, so that tiles which meet the same columns of
// the group's matrix run together, and blocks have as many but for one. A tile begins at a row of its group whatever the
// alignment is: it reads over the group's end, and its caller stores the rows before `end` alone.
//
// A warp looks at 32 groups at once; one after the other they would cost the latency of memory each. By ends, lane l cuts
// psum[first + l] into range, and a prefix maximum over the lanes makes the ends ascend, so that two groups never share a
// row, whatever psum holds. The rows of a group follow from its end and the one before. By counts, the count is the end. A
// first pass counts all tiles. Then each block steps from one of its tiles to the next: while the tile lies beyond the 32
// groups at hand, the warp looks at the next 32; a prefix sum of their tiles and a ballot find the group. So 256 experts
// cost eight steps, not 256.

#include "kernels/gemm/parts/group_tiles.h"

#include "kernels/checks/value_check.h"

namespace tessera::kernels::gemm {

using dsl::Value;

namespace {

constexpr int32_t kLanes = 32;

/// value(lane) over the lanes up to each, by an operation whose identity is 0 for what comes here.
Value prefix(dsl::Builder& k, const Value& value, const char* name,
             const std::function<Value(const Value& a, const Value& b)>& join) {
  auto all = k.var(DType::i32, value, name);
  for (int32_t delta = 1; delta < kLanes; delta *= 2) {
    auto lower = k.let("lower", k.shuffle_up(all, delta));
    all = join(Value(all), select(k.lane() >= delta, lower, 0));
  }
  return all;
}

}  // namespace

GroupTiles::GroupTiles(dsl::Builder& k, GroupRows kind, const Value& groups, const Value& rows)
    : k_(k), kind_(kind), groups_(groups), rows_(rows) {
  const bool by_ends = kind == GroupRows::by_ends;
  ends_or_counts_ = k.input(by_ends ? "psum" : "masked_m", DType::i32, {groups}, {.align = 4});
  if (by_ends) alignment_ = k.scalar("alignment", DType::i32);
}

GroupTiles::Lanes GroupTiles::lanes(const Value& first, const Value& end_before,
                                    bool is_reported) const {
  auto group = k_.let("group_of_lane", first + k_.lane());
  auto given = k_.var(DType::i32, 0, "given");
  k_.if_(group < groups_, [&] { given = (*ends_or_counts_)(group); });
  const auto report = [&](const Value& right, const char* argument) {
    if (is_reported) {
      k_.report_unless(group >= groups_ || Value(given) == right, out_of_range(argument));
    }
  };
  if (kind_ == GroupRows::by_counts) {
    auto count = k_.let("count", max(min(Value(given), rows_), 0));
    report(count, "masked_m");
    return {count, count};
  }
  auto cut = k_.let("cut_end", max(min(Value(given), rows_), end_before));
  auto end = k_.let("end", prefix(k_, cut, "greatest_end",
                                  [](const Value& a, const Value& b) { return max(a, b); }));
  report(end, "psum");
  auto lower_end = k_.let("lower_end", k_.shuffle_up(end, 1));
  auto before = k_.let("end_before", select(k_.lane() == 0, end_before, lower_end));
  // In u32: an end near 2^31 rounds up beyond it.
  auto start =
      (dsl::u32(before) + dsl::u32(alignment_ - 1)) / dsl::u32(alignment_) * dsl::u32(alignment_);
  auto from = k_.let("start", dsl::i32(min(start, dsl::u32(end))));
  return {end, k_.let("rows_of_lane", end - from)};
}

void GroupTiles::each(const Value& block, const Value& blocks, int64_t tile_rows,
                      const Value& tiles_across,
                      const std::function<void(const GroupTile&)>& body) const {
  auto across = k_.let("across", tiles_across);
  const auto of_warp = [&](const char* name, const Value& value, const Value& lane) {
    auto same = k_.let(name, k_.uniform(k_.shuffle(value, lane)));
    k_.assume(same >= 0);
    return same;
  };
  const Value last = dsl::i32(kLanes - 1);
  auto of_lane = k_.var(DType::i32, 0, "of_lane"), end_of_all = k_.var(DType::i32, 0, "end_of_all");
  k_.serial(0, ceil_div(groups_, kLanes), [&](Value chunk) {
    const Lanes found = lanes(chunk * kLanes, end_of_all, true);
    of_lane += ceil_div(found.rows, tile_rows) * across;
    end_of_all = k_.shuffle(found.end, last);
  });
  auto total = k_.let("total", k_.uniform(k_.warp_sum(Value(of_lane))));
  // The 32 groups at hand: the first of the next 32, the tiles before them; of each lane its end, its rows and the tiles
  // up to its own.
  auto next = k_.var(DType::i32, 0, "next"), before = k_.var(DType::i32, 0, "before");
  auto end = k_.var(DType::i32, 0, "end_at_hand"), rows = k_.var(DType::i32, 0, "rows_at_hand");
  auto through = k_.var(DType::i32, 0, "through");
  k_.serial(
      block, total,
      [&](Value tile) {
        k_.loop([&] {
          auto at_hand = k_.let("at_hand", k_.uniform(k_.shuffle(through, last)));
          k_.break_if(tile < Value(before) + at_hand);
          before += at_hand;
          const Lanes found = lanes(next, k_.let("last_end", k_.shuffle(end, last)), false);
          end = found.end, rows = found.rows;
          through = prefix(k_, ceil_div(found.rows, tile_rows) * across, "tiles",
                           [](const Value& a, const Value& b) { return a + b; });
          next += kLanes;
        });
        auto at = k_.let("at", tile - Value(before));
        auto lane = k_.let("lane_of_tile", dsl::i32(popcount(k_.ballot(Value(through) <= at))));
        auto group = of_warp("group", Value(next) - kLanes + lane, lane);
        k_.assume(group < groups_);
        auto rows_here = of_warp("rows_here", rows, lane);
        auto end_here = kind_ == GroupRows::by_counts ? rows_here : of_warp("end_here", end, lane);
        auto down = k_.let("down", max(ceil_div(rows_here, tile_rows), 1));
        auto first = k_.let("first_tile", k_.shuffle(through, lane) - down * across);
        auto in_group = k_.let("in_group", at - first);
        auto row = of_warp("row", end_here - rows_here + in_group % down * tile_rows, lane);
        auto column = of_warp("column", in_group / down, lane);
        body({kind_ == GroupRows::by_counts ? group : dsl::i32(0), row, end_here, group, column});
      },
      blocks);
}

}  // namespace tessera::kernels::gemm
