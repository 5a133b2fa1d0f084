// Every block sums the tiles of 128 requests at a time until it comes to its own: a few loads and three scans, no
// plan in memory, and a grid that depends on the extents of the tensors alone.

#include "kernels/attention/parts/packed_requests.h"

#include <string>

#include "kernels/attention/parts/prefix_search.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {

using dsl::Axis;
using dsl::Ref;
using dsl::Value;

PackedPlace find_packed(dsl::Builder& k, const Value& bounds, const PackedSide& tiled,
                        const PackedSide& other, const Value& tile, int64_t size, TileOrder order) {
  constexpr auto kI32 = DType::i32;
  const auto named = [](const PackedSide& side, const char* rest) {
    return std::string(side.letter) + rest;
  };
  auto own_ends = k.shared(kI32, {kRequests}, named(tiled, "_ends")),
       other_ends = k.shared(kI32, {kRequests}, named(other, "_ends"));
  auto ends = k.shared(kI32, {kRequests}, "ends"), place = k.shared(kI32, {5}, "place");
  auto before =
      k.var(kI32, 0, "before");  // tiles of the requests of earlier rounds, and their rows
  auto own_before = k.var(kI32, 0, named(tiled, "_before")),
       other_before = k.var(kI32, 0, named(other, "_before"));
  k.fill(place, 0);
  k.serial(0, ceil_div(bounds, kRequests), [&](Value chunk) {
    k.parallel({kRequests}, [&](Value i) {
      auto request = k.let("request", chunk * kRequests + i);
      const auto cut = [&](const PackedSide& side, const Value& least) {
        Value begin = side.ends(request), given = side.ends(request + 1);
        auto is_behind = request >= bounds - 1;
        auto is_first_wrong = request == 0 && begin != 0;
        k.report_unless(is_behind || (!is_first_wrong && given >= begin && given <= side.rows),
                        out_of_range("cu_" + std::string(side.letter)));
        return max(select(is_behind, 0, min(given, side.rows)), least);
      };
      Value own = own_before, of_other = other_before;
      auto own_end = cut(tiled, own);
      own_ends(i) = select(request >= bounds - 1, tiled.rows, own_end);
      other_ends(i) = cut(other, of_other);
    });
    k.scan_max(own_ends, own_ends, Axis(0));
    k.scan_max(other_ends, other_ends, Axis(0));
    k.parallel({kRequests}, [&](Value i) {
      Value end = own_ends(i), begin = own_ends(max(i - 1, 0)), own = own_before;
      ends(i) = ceil_div(end - select(i > 0, begin, own), size);
    });
    k.scan_sum(ends, ends, Axis(0));
    Value until = before, all = ends(kRequests - 1), own = own_before, of_other = other_before;
    k.if_(tile >= until && tile < until + all, [&] {
      auto owner = k.let("owner", find_owner(k, ends, tile - until));
      auto nth = k.let("nth", tile - until - sum_before(ends, owner));
      Value own_end = own_ends(owner), other_end = other_ends(owner);
      auto first = k.let(named(tiled, "_first"), max(sum_before(own_ends, owner), own));
      auto other_first =
          k.let(named(other, "_first"), max(sum_before(other_ends, owner), of_other));
      k.if_(k.thread() == 0, [&] {
        place(0) = first, place(1) = own_end - first;
        place(2) = other_first, place(3) = other_end - other_first;
        place(4) = (order == TileOrder::last_rows_first ? ceil_div(own_end - first, size) - 1 - nth
                                                        : nth) *
                   size;
      });
    });
    before = until + all, own_before = own_ends(kRequests - 1),
    other_before = other_ends(kRequests - 1);
    k.break_if(until + all > tile);
  });
  const auto at = [&](int i, const std::string& name) { return k.let(name, k.uniform(place(i))); };
  return {at(0, named(tiled, "_first")), at(1, named(tiled, "_length")),
          at(2, named(other, "_first")), at(3, named(other, "_length")), at(4, "row")};
}

}  // namespace tessera::kernels::attention
