// engram_ngram_ids: the last token ids of each row of a ragged batch, the input of engram_hash.
//
// Dtypes   token_ids i32|i64, the rest i32
// Method   one thread per row finds its request by binary search and reads its last ids, from the batch or
//          from the request's history; one more thread per request writes the history of the next call. A
//          few bytes per row: the bound is the latency of the search.
// Maths    column i of a row is the id i positions before it; pad_id before the history

#include <algorithm>
#include <optional>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t ngram;
  DType ids;
  bool has_rows, has_requests, has_history;
};

constexpr int64_t kThreads = 256;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t before = s.ngram - 1;  // ids of a history
  Builder k("engram_ngram_ids");
  Value tokens = i32(0), batch = i32(0);
  std::optional<Ref> token_ids, out, history, next_history;
  if (s.has_rows) {
    tokens = k.dim("tokens");
    token_ids = k.input("token_ids", s.ids, {tokens}, {.align = bytes(s.ids)});
    out = k.output("ngram_token_ids", DType::i32, {tokens, s.ngram}, {.align = 4});
  }
  auto ends = k.dim("ends");
  auto row_start = k.input("row_start", DType::i32, {ends}, {.align = 4});
  if (s.has_history) {
    auto requests = k.dim("requests");
    history = k.input("history", DType::i32, {requests, before}, {.align = 4});
    next_history = k.output("next_history", DType::i32, {requests, before}, {.align = 4});
  }
  auto pad = k.scalar("pad_id", DType::i32);
  auto at = k.launch({ceil_div(tokens + ends - 1, kThreads)}, {.threads = kThreads});
  k.let_next_kernel_start();
  if (s.has_requests) batch = k.let("batch", ends - 1);
  auto item = k.let("item", at.x * kThreads + k.thread());
  k.wait_for_previous_kernel();
  // The id `back` positions before row `place` of request b, whose rows begin at `first`.
  const auto id_at = [&](const Value& b, const Value& first, const Value& place,
                         const Value& back) {
    auto id = k.var(DType::i32, pad, "id");
    auto row = k.let("row", place - back);
    if (s.has_rows) k.if_(row >= first, [&] { id = i32((*token_ids)(row)); });
    if (s.has_history) {
      k.if_(row < first,
            [&] { id = (*history)(b, static_cast<int>(before) - (first - row)).unchecked(); });
    }
    return k.let("id_found", id);
  };
  const auto ascends = [&](const Value& b, const Value& first, const Value& end) {
    return first >= 0 && first <= end && end <= tokens && (b > 0 || first == 0);
  };
  if (s.has_rows) {
    k.if_(item < tokens, [&] {
      auto b = k.var(DType::i32, 0, "b"), end = k.var(DType::i32, batch, "end");
      auto first = k.var(DType::i32, 0, "first"), last = k.var(DType::i32, 0, "last");
      if (s.has_requests) {
        k.loop([&] {  // the last request that begins at the row or before it
          const Value low = b, high = end;
          k.break_if(high - low <= 1);
          auto middle = k.let("middle", (low + high) / 2);
          auto begins = k.let("begins", row_start(middle) <= item);
          b = select(begins, middle, low);
          end = select(begins, high, middle);
        });
        first = row_start(b);
        last = row_start(Value(b) + 1);
      }
      const Value of = b, from = first, to = last;  // read in this order by every compiler
      auto is_row = k.let("is_row", ascends(of, from, to) && item >= from && item < to);
      k.unrolled(s.ngram, [&](Value i) {
        auto id = k.var(DType::i32, pad, "id_of_column");
        k.if_(is_row, [&] { id = id_at(of, from, item, i); });
        (*out)(item, i) = id;
      });
    });
  }
  if (s.has_requests) {
    k.if_(item >= tokens && item - tokens < batch, [&] {
      auto b = k.let("request", item - tokens);
      auto first = k.let("first", row_start(b).read()), end = k.let("end", row_start(b + 1).read());
      auto is_known = k.let("is_known", ascends(b, first, end));
      k.report_unless(is_known, out_of_range("row_start"));
      if (!s.has_history) return;
      auto last = k.let("last", select(is_known, end, 0));
      k.unrolled(before, [&](Value j) {
        const Value back = static_cast<int>(before) - j;
        const Value id = id_at(b, select(is_known, first, 0), last, back);
        (*next_history)(b, j) = id;
      });
    });
  }
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  if (c["T"] == 0 && (c["B"] == 0 || !c.has("history") || c["N"] == 1)) return;
  Spec s{};
  s.ngram = c.i32("N");
  s.ids = c.dtype("token_ids");
  s.has_rows = c["T"] > 0;
  s.has_requests = c["B"] > 0;
  s.has_history = c.has("history") && c["B"] > 0 && c["N"] > 1;
  go.add(build, s);
}

void check_values(const Call& c) {
  const TensorView& starts = c.given("row_start");
  if (!values_are_checked(starts)) return;
  int64_t lowest = 0;
  for (int64_t b = 0; b < starts.size(); ++b) {
    const int64_t start = integer_at(starts, b), highest = b == 0 ? 0 : c["T"];
    c.need(start >= lowest && start <= highest, "row_start", out_of_range("row_start"),
           std::to_string(lowest) + " .. " + std::to_string(highest),
           std::to_string(start) + " at " + to_string(Dims{b}));
    lowest = start;
  }
}

}  // namespace

const Op engram_ngram_ids_op{
    .name = "engram_ngram_ids",
    .family = "engram",
    .purpose = "the last token ids of each row of a ragged batch, for engram_hash and engram_embed",
    .signature = R"(
      token_ids           i32/i64 [T]        values -2147483648 .. 2147483647
      row_start           i32 [B+1]          # first row of each request, then the end of the last; rows behind it are padding
      history?            i32 [B, N-1]       # the ids before each request's rows, the oldest first
      -> ngram_token_ids  i32 [T, N]         # its own id, the one before it, ..
      -> next_history?    i32 [B, N-1]       iff history  # for the next call
      param  ngram_size int
      param  pad_id int = -1
      let    N = ngram_size
      need   1 <= ngram_size <= 64
      need   -2147483648 <= pad_id <= 2147483647
      limit  T + B <= 2130706431 on token_ids "so many tokens are not supported"
    )",
    .launches = launches,
    .check_values = check_values,
    .examples = R"(
      T=67 B=3 token_ids=i32 ngram_size=3 history=given; T=9 B=1 token_ids=i64 ngram_size=2; T=5 B=5 token_ids=i32 ngram_size=4 history=given)",
    .bench = R"(
      T=1 B=1 token_ids=i32 ngram_size=3 history=given; T=256 B=256 token_ids=i32 ngram_size=3 history=given
      T=8192 B=64 token_ids=i32 ngram_size=3 history=given)",
    .values = {{"token_ids", [](const Case&, int64_t i) { return i * 7919 % 100'000; }},
               {"row_start",
                [](const Case& c, int64_t b) { return b * c["T"] / std::max<int64_t>(c["B"], 1); }},
               {"history", [](const Case&, int64_t i) { return i * 104729 % 100'000; }}}};

}  // namespace tessera::kernels
