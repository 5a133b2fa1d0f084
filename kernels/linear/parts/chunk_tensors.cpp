#include "kernels/linear/parts/chunk_tensors.h"

#include <limits>

#include "kernels/attention/parts/prefix_search.h"
#include "kernels/checks/value_check.h"
#include "kernels/linear/parts/chunk_kernel.h"

namespace tessera::kernels::linear {

using namespace dsl;

namespace {

constexpr auto kI32 = DType::i32;
constexpr int64_t kRequests = attention::kRequests;

/// The end of a request as given, at most all tokens; 0 for one that there is not.
Value given_end(Builder& k, const Ref& bounds, const Value& requests, const Value& tokens,
                const Value& request) {
  Value begin = bounds(request), end = bounds(request + 1);
  auto is_behind = request >= requests, is_first_wrong = request == 0 && begin != 0;
  k.report_unless(is_behind || (!is_first_wrong && end >= begin && end <= tokens),
                  out_of_range("cu_seqlens"));
  return select(is_behind, 0, max(min(end, tokens), 0));
}

}  // namespace

Ref rows_of(Builder& k, const std::string& name, DType dtype, const std::vector<Arg>& shape,
            int64_t width) {
  const DimOptions apart{.multiple_of = width};
  return k.input(name, dtype, shape,
                 {.strides = {k.stride(name + "_request", apart), k.stride(name + "_token", apart),
                              k.stride(name + "_head", apart), 1},
                  .align = int64_t{bytes(dtype)} * width});
}

Value length_of(Builder& k, const Ref& lengths, const Value& request, const Value& tokens) {
  auto given = k.let("given_length", lengths(request));
  k.report_unless(given >= 0 && given <= tokens, out_of_range("lengths"));
  return k.let("length", k.uniform(max(min(given, tokens), 0)));
}

PackedRequest packed_request(Builder& k, const Ref& bounds, const Value& requests,
                             const Value& tokens, const Value& request) {
  auto latest = k.reducer(ReduceOp::max, kI32);
  latest.init(0);
  k.serial(0, ceil_div(request, kRequests), [&](Value round) {
    k.parallel({kRequests}, [&](Value i) {
      auto earlier = k.let("earlier", round * kRequests + i);
      auto end = given_end(k, bounds, requests, tokens, earlier);
      latest.update(select(earlier < request, end, 0));
    });
  });
  auto first = k.let("first", k.uniform(latest.finalize()));
  auto end = k.let("end_of_request", given_end(k, bounds, requests, tokens, request));
  return {first, k.let("length", k.uniform(max(end - first, 0))),
          k.let("place", first / kChunk + request)};
}

PackedChunk packed_chunk(Builder& k, const Ref& bounds, const Value& requests, const Value& tokens,
                         const Value& place) {
  auto ends = k.shared(kI32, {kRequests}, "ends"), places = k.shared(kI32, {kRequests}, "places");
  auto before = k.var(kI32, 0, "before");  // where the requests of earlier rounds end
  auto first = k.var(kI32, 0, "first"), end = k.var(kI32, 0, "end");
  auto chunk = k.var(kI32, 0, "chunk");
  k.serial(0, ceil_div(requests, kRequests), [&](Value round) {
    k.parallel({kRequests}, [&](Value i) {
      auto request = k.let("request", round * kRequests + i);
      Value earlier = before;
      auto given = given_end(k, bounds, requests, tokens, request);
      ends(i) = max(given, earlier);
    });
    k.scan_max(ends, ends, Axis(0));
    k.parallel({kRequests}, [&](Value i) {
      auto request = k.let("request", round * kRequests + i);
      constexpr int kNone = std::numeric_limits<int>::max();
      Value own_end = ends(i);
      places(i) = select(request < requests, own_end / kChunk + request + 1, kNone);
    });
    Value earlier = before, last = places(kRequests - 1);
    k.if_(place < last, [&] {
      auto owner = k.let("owner", attention::find_owner(k, places, place));
      Value own_end = ends(owner), own_before = ends(max(owner - 1, 0));
      auto own_first = k.let("own_first", select(owner > 0, own_before, earlier));
      auto request = round * kRequests + owner;
      first = own_first, end = select(request < requests, own_end, own_first);
      chunk = place - (own_first / kChunk + request);
    });
    before = ends(kRequests - 1);
    k.break_if(place < last);
  });
  auto own_first = k.let("first_token", k.uniform(first));
  return {own_first, k.let("length", k.uniform(end) - own_first),
          k.let("row", k.uniform(chunk) * kChunk)};
}

}  // namespace tessera::kernels::linear
