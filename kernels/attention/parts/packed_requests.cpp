// Every block sums the tiles of 128 requests at a time until it comes to its own: a few loads and three scans, no
// plan in memory, and a grid that depends on the extents of the tensors alone.

#include "kernels/attention/parts/packed_requests.h"

#include "kernels/attention/parts/prefix_search.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {

using dsl::Axis;
using dsl::Ref;
using dsl::Value;

PackedPlace find_packed(dsl::Builder& k, const PackedRequests& t, const Value& tile, int64_t rows) {
  constexpr auto kI32 = DType::i32;
  auto q_ends = k.shared(kI32, {kRequests}, "q_ends"),
       k_ends = k.shared(kI32, {kRequests}, "k_ends");
  auto ends = k.shared(kI32, {kRequests}, "ends"), place = k.shared(kI32, {5}, "place");
  auto before =
      k.var(kI32, 0, "before");  // tiles of the requests of earlier rounds, and their rows
  auto q_before = k.var(kI32, 0, "q_before"), k_before = k.var(kI32, 0, "k_before");
  k.fill(place, 0);
  k.serial(0, ceil_div(t.bounds, kRequests), [&](Value chunk) {
    k.parallel({kRequests}, [&](Value i) {
      auto request = k.let("request", chunk * kRequests + i);
      const auto cut = [&](const Ref& cu, const Value& all, const Value& least, const char* name) {
        Value begin = cu(request), given = cu(request + 1);
        auto is_behind = request >= t.bounds - 1;
        auto is_first_wrong = request == 0 && begin != 0;
        k.report_unless(is_behind || (!is_first_wrong && given >= begin && given <= all),
                        out_of_range(name));
        return max(select(is_behind, 0, min(given, all)), least);
      };
      Value of_q = q_before, of_k = k_before;
      auto q_end = cut(t.cu_q, t.q_rows, of_q, "cu_q");
      q_ends(i) = select(request >= t.bounds - 1, t.q_rows, q_end);
      k_ends(i) = cut(t.cu_k, t.k_rows, of_k, "cu_k");
    });
    k.scan_max(q_ends, q_ends, Axis(0));
    k.scan_max(k_ends, k_ends, Axis(0));
    k.parallel({kRequests}, [&](Value i) {
      Value end = q_ends(i), begin = q_ends(max(i - 1, 0)), of_q = q_before;
      ends(i) = ceil_div(end - select(i > 0, begin, of_q), rows);
    });
    k.scan_sum(ends, ends, Axis(0));
    Value until = before, all = ends(kRequests - 1), of_q = q_before, of_k = k_before;
    k.if_(tile >= until && tile < until + all, [&] {
      auto owner = k.let("owner", find_owner(k, ends, tile - until));
      auto nth = k.let("nth", tile - until - sum_before(ends, owner));
      Value q_end = q_ends(owner), k_end = k_ends(owner);
      auto q_first = k.let("q_first", max(sum_before(q_ends, owner), of_q));
      auto k_first = k.let("k_first", max(sum_before(k_ends, owner), of_k));
      k.if_(k.thread() == 0, [&] {
        place(0) = q_first, place(1) = q_end - q_first;
        place(2) = k_first, place(3) = k_end - k_first;
        // Its last rows first, which see the most keys.
        place(4) = (ceil_div(q_end - q_first, rows) - 1 - nth) * rows;
      });
    });
    before = until + all, q_before = q_ends(kRequests - 1), k_before = k_ends(kRequests - 1);
    k.break_if(until + all > tile);
  });
  const auto at = [&](int i, const char* name) { return k.let(name, k.uniform(place(i))); };
  return {at(0, "q_first"), at(1, "q_length"), at(2, "k_first"), at(3, "k_length"), at(4, "row")};
}

}  // namespace tessera::kernels::attention
