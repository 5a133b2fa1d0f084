// serving_plan: the request of each row of a step, its position, what it sees of compressed caches, and its own slot.
//
// Dtypes   i32
// Method   one thread per row, which halves the requests until one is left; the bound is the latency of these loads.
// Maths    row r is of request b where row_start[b] <= r < row_start[b + 1], at position p = start[b] + r - row_start[b]; it
//          sees (p + 1) / ratio entries. Rows of no request are padding: -1, and 0 entries.

#include <optional>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/pages/parts/page_place.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t has_requests, has_start, has_pages;
};

constexpr int kThreads = 128;
constexpr int kMostHalvings = 31;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  OpBuilder k(serving_plan_op, {});
  auto rows = k.dim("rows");
  const auto of_rows = [&](const char* name) {
    return k.output(name, DType::i32, {rows}, {.align = 4});
  };
  const Ref row_request = of_rows("row_request"), positions = of_rows("positions");
  const Ref entries = k.output("entries", DType::i32, {2, rows}, {.align = 4});
  std::optional<Ref> row_start, start, slots;
  std::optional<Value> requests, ratio, second_ratio;
  std::optional<serving::PageTable> table;
  if (s.has_requests != 0) {
    auto bounds = k.dim("bounds");
    requests = bounds - 1;
    row_start = k.input("row_start", DType::i32, {bounds}, {.align = 4});
    if (s.has_start != 0) start = k.tensor("start");
    ratio = k.param("ratio"), second_ratio = k.param("second_ratio");
  }
  if (s.has_pages != 0) {
    slots = of_rows("slots");
    if (requests) {
      const Value columns = k.extent("Q");
      const Ref pages = k.tensor("page_table");
      table = {"page_table", pages, columns, k.param("page_size")};
    }
  }
  auto at = k.launch({ceil_div(rows, kThreads)}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto row = k.let("row", at.x * kThreads + k.thread());
  k.wait_for_previous_kernel();
  k.if_(row < rows, [&] {
    auto request = k.var(DType::i32, -1, "request"), position = k.var(DType::i32, -1, "position");
    auto slot = k.var(DType::i32, -1, "slot_of_row");
    if (requests) {
      // The last request that begins at the row or before; of several, all but the last are empty.
      auto low = k.var(DType::i32, 0, "low"), high = k.var(DType::i32, *requests, "high");
      k.loop([&](Value round) {
        k.break_if(high - low <= 1 || round == kMostHalvings);
        auto middle = k.let("middle", low + (high - low) / 2);
        Value first = (*row_start)(middle);
        k.if_else(
            first <= row, [&] { low = middle; }, [&] { high = middle; });
      });
      auto owner = k.let("owner", low);
      auto first = k.let("first", (*row_start)(owner)),
           last = k.let("last", (*row_start)(owner + 1));
      auto given = k.let("given", start ? (*start)(owner).read() : i32(0));
      auto ascends = k.let("ascends", first >= 0 && last >= first && last <= rows);
      k.report_unless(ascends, out_of_range("row_start"));
      auto begins = k.let("begins", given >= 0 && i64(given) + i64(last) - i64(first) <= INT32_MAX);
      k.report_unless(begins, out_of_range("start"));
      k.if_(ascends && begins && first <= row && row < last, [&] {
        request = owner, position = given + (row - first);
        if (table) slot = serving::slot_of(k, *table, "start", owner, given + (row - first));
      });
    }
    row_request(row) = request, positions(row) = position;
    auto seen = k.let("seen", position + 1);
    for (int32_t i = 0; i < 2; ++i) {
      entries(i, row) = requests ? seen / (i == 0 ? *ratio : *second_ratio) : seen;
    }
    if (slots) (*slots)(row) = slot;
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  const bool has_requests = c["B"] > 0;
  const Spec s{has_requests ? 1 : 0, has_requests && c.has("start") ? 1 : 0,
               c.has("page_table") ? 1 : 0};
  go.add(build, s);
}

void require_rows(const Call& c) {
  const TensorView &row_start = c.given("row_start"), &start = c.given("start");
  const bool has_start = c.has("start");
  if (!values_are_checked(row_start) || (has_start && !values_are_checked(start))) return;
  int64_t before = 0;
  for (int64_t b = 0; b <= c["B"]; ++b) {
    const int64_t first = integer_at(row_start, b);
    c.need(first >= before && first <= c["num_rows"], "row_start", out_of_range("row_start"),
           std::to_string(before) + " .. " + std::to_string(c["num_rows"]),
           std::to_string(first) + " at " + to_string(Dims{b}));
    before = first;
  }
  for (int64_t b = 0; b < c["B"]; ++b) {
    const int64_t count = integer_at(row_start, b + 1) - integer_at(row_start, b);
    const int64_t from = has_start ? integer_at(start, b) : 0;
    c.need(from >= 0 && from <= INT32_MAX - count, "start", out_of_range("start"),
           "0 .. " + std::to_string(INT32_MAX - count),
           std::to_string(from) + " at " + to_string(Dims{b}));
    if (!c.has("page_table") || !values_are_checked(c.given("page_table"))) continue;
    for (int64_t i = 0; i < count; ++i) {
      serving::require_page(c, "page_table", c["page_size"], {"start", from + i, Dims{b}, b, 1});
    }
  }
}

}  // namespace

const Op serving_plan_op{
    .name = "serving_plan",
    .family = "serving",
    .purpose = "requests, positions, entries and slots of the rows of a step",
    .signature = R"(
      row_start       i32 [B+1]               # rows of the new tokens of each request, ascending
      start?          i32 [B]                 # its tokens before the call; none: 0
      page_table?     i32 [B, Q] rows         # of its own tokens; negative: no page
      -> row_request  i32 [num_rows]          # -1: padding
      -> positions    i32 [num_rows]          # -1: padding
      -> entries      i32 [2, num_rows]       # of the caches of both ratios, as lengths of the indexer and topk_select
      -> slots?       i32 [num_rows]          iff page_table  # -1: none
      param  num_rows int >= 0
      param  ratio int = 4
      param  second_ratio int = 128
      param  page_size int = 64
      need   1 <= ratio <= 2147483647
      need   1 <= second_ratio <= 2147483647
      need   1 <= page_size <= 1073741824
      need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
      limit  B <= 2130706430
      limit  num_rows <= 1065353215
    )",
    .launches = launches,
    .check_values = require_rows,
    .examples = R"(
      B=5 num_rows=150 start=given page_table=given Q=9; B=1 num_rows=300 ratio=1 second_ratio=2
      B=200 num_rows=6000 start=given)",
    .bench = R"(
      B=64 num_rows=64 start=given page_table=given Q=2000; B=64 num_rows=32768 start=given page_table=given Q=2000)",
    .values = {{"row_start",
                [](const Case& c, int64_t b) {
                  return b * (c["num_rows"] / std::max<int64_t>(c["B"] + 1, 1));
                }},
               {"start", [](const Case&, int64_t b) { return b * 37 % 500; }},
               {"page_table", [](const Case&, int64_t i) { return i * 7919 % 1000 - 1; }}}};

}  // namespace tessera::kernels
