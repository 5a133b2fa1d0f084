// hisparse_backup: copies the row of each request's newest token from the device cache to the host.
//
// Dtypes   lengths, slots i32, host rows i64, rows of bytes
// Method   a warp per request. Writes to the host are visible to the CPU when it has waited for the stream,
//          and to later kernels of the stream.
// Maths    none

#include <optional>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/hisparse/parts/requests.h"
#include "kernels/serving/hisparse/parts/row_copy.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kThreads = 128, kWords = 4;  // of an access

struct Spec {
  int32_t has_num_reqs;
};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  Builder k("hisparse_backup");
  auto batch = k.dim("batch"), states = k.dim("states"), columns = k.dim("columns");
  auto longest = k.dim("longest");
  auto seq_len = k.input("seq_len", DType::i32, {batch}, {.align = 4});
  auto req = k.input("req", DType::i32, {batch}, {.align = 4});
  std::optional<Ref> num_reqs;
  if (s.has_num_reqs != 0) num_reqs = k.input("num_reqs", DType::i32, {1}, {.align = 4});
  auto hot_slots = k.input("hot_slots", DType::i32, {states, columns}, {.align = 4});
  auto loc_stride = k.stride("host_loc_stride");
  auto host_loc =
      k.input("host_loc", DType::i64, {states, longest}, {.strides = {loc_stride, 1}, .align = 8});
  auto rows = k.dim("rows"), host_rows = k.dim("host_rows");
  auto words = k.dim("words", {.multiple_of = kWords});
  auto cache_stride = k.stride("cache_stride", {.multiple_of = kWords});
  auto host_stride = k.stride("host_stride", {.multiple_of = kWords});
  auto cache = k.input("cache", DType::u32, {rows, words}, {.strides = {cache_stride, 1}});
  auto host = k.output("host", DType::u32, {host_rows, words}, {.strides = {host_stride, 1}});
  auto at = k.launch({ceil_div(batch, kThreads / 32)}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto b = k.let("b", at.x * (kThreads / 32) + k.thread() / 32);
  k.wait_for_previous_kernel();
  auto requests = k.let("requests", num_reqs ? min((*num_reqs)(0).read(), batch) : batch);
  k.if_(b < requests, [&] {
    auto q = k.let("q", req(b).unchecked());
    auto is_twin = k.var(DType::boolean, false, "is_twin");
    k.serial(
        k.lane(), b, [&](Value other) { is_twin = Value(is_twin) || req(other) == q; }, 32);
    const Value has_twin = k.warp_any(is_twin);
    auto is_known = k.let("is_known", q >= 0 && q < states && !has_twin);
    k.report_unless(is_known || k.lane() > 0, out_of_range("req"));
    auto length = k.let("length", seq_len(b).unchecked());
    auto has_token = k.let("has_token", length >= 0 && length <= longest);
    k.report_unless(has_token || k.lane() > 0, out_of_range("seq_len"));
    k.if_(is_known && has_token && length > 0, [&] {
      auto slots = columns - 1;
      auto slot = k.let("slot", min(length - 1, slots));
      auto from = k.let("from", hot_slots(q, slot).unchecked());
      auto to = k.let("to", host_loc(q, length - 1).unchecked());
      auto fits = k.let("fits", from >= -1 && from < rows);
      k.report_unless(fits || k.lane() > 0, out_of_range("hot_slots"));
      auto fits_host = k.let("fits_host", to >= -1 && to < i64(host_rows));
      k.report_unless(fits_host || k.lane() > 0, out_of_range("host_loc"));
      k.if_(fits && from >= 0 && fits_host && to >= 0, [&] {
        auto target = k.let("target", i32(to));
        k.serial(0, ceil_div(words, 32 * kWords), [&](Value round) {
          auto word = k.let("word", (round * 32 + k.lane()) * kWords);
          k.if_(word < words, [&] {
            k.vectorized(kWords, [&](Value i) {
              host(target, word + i).unchecked() = cache(from, word + i).unchecked();
            });
          });
        });
      });
    });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  if (c["B"] == 0 || c["rows"] == 0 || c["S"] == 0 || c["bytes"] == 0) return;
  Args args;
  for (const char* name : {"host", "cache"}) {
    args.tensors.push_back({name, serving::as_words(c.given(name))});
  }
  go.add(build, Spec{c.has("num_reqs") ? 1 : 0}, args);
}

void check(const Call& c) {
  for (const char* rows : {"host", "cache"}) serving::require_aligned_rows(c, rows);
}

void check_values(const Call& c) {
  for (const char* name : {"seq_len", "req", "num_reqs", "hot_slots", "host_loc"}) {
    if (c.has(name) && !values_are_checked(c.given(name))) return;
  }
  const int64_t requests = serving::requests_that_count(c);
  serving::require_states(c, requests);
  require_values(c.check(), "seq_len", c.given("seq_len"), 0, c["L"],
                 [&](int64_t b) { return b < requests; });
  std::set<int64_t> targets;
  for (int64_t b = 0; b < requests; ++b) {
    const int64_t q = integer_at(c.given("req"), b), length = integer_at(c.given("seq_len"), b);
    if (length == 0) continue;
    const auto require_row = [&](const char* name, int64_t column, int64_t columns, int64_t rows) {
      const int64_t row = integer_at(c.given(name), q * columns + column);
      c.need(row >= -1 && row < rows, name, out_of_range(name), "-1 .. " + std::to_string(rows - 1),
             std::to_string(row) + " at " + to_string(Dims{q, column}));
      return row;
    };
    require_row("hot_slots", std::min(length - 1, c["C"]), c["C"] + 1, c["rows"]);
    const int64_t target = require_row("host_loc", length - 1, c["L"], c["S"]);
    c.need(target < 0 || targets.insert(target).second, "host_loc", out_of_range("host_loc"),
           "a host row for one request at most",
           std::to_string(target) + " at " + to_string(Dims{q, length - 1}));
  }
}

}  // namespace

const Op hisparse_backup_op{
    .name = "hisparse_backup",
    .family = "serving",
    .purpose = "copies the row of each request's newest token from the device cache to the host",
    .signature = R"(
      seq_len        i32 [B]               # 0: nothing is copied
      req            i32 [B]               # row of the state tables, each once
      num_reqs?      i32 [1]               # requests from here on do not count
      hot_slots      i32 [Q, C+1]          # cache row of each slot; the last one is the newest token's
      host_loc       i64 [Q, L] rows       # host row of each token; -1: none
      cache          u8 [rows, bytes] rows
      -> inout host  u8 [S, bytes] rows    # pinned and mapped
      need   C >= 0 on hot_slots "there must be a slot"
      need   Q >= 1 on hot_slots "argument 'hot_slots' has no rows"
      need   L >= 1 on host_loc "argument 'host_loc' has no columns"
      need   bytes % 16 = 0 on cache "a row has the wrong number of bytes"
      limit  B <= 2130706431
      limit  rows <= 2130706431 on cache "so many rows are not supported"
      limit  S <= 2130706431 on host "so many rows are not supported"
    )",
    .launches = launches,
    .check = check,
    .check_values = check_values,
    .examples = R"(
      B=3 Q=5 C=40 L=90 S=500 rows=300 bytes=656; B=2 Q=2 C=64 L=50 S=300 rows=200 bytes=512 num_reqs=given)",
    .bench = R"(
      B=1 Q=1 C=4096 L=65536 S=65536 rows=4097 bytes=512; B=100 Q=100 C=4096 L=65536 S=65536 rows=409700 bytes=656)",
    .values = {{"seq_len", [](const Case& c, int64_t) { return c["L"]; }},
               {"req", [](const Case&, int64_t b) { return b; }},
               {"num_reqs", [](const Case& c, int64_t) { return c["B"] - 1; }},
               {"hot_slots", [](const Case& c, int64_t i) { return i % c["rows"]; }},
               {"host_loc", [](const Case& c, int64_t i) { return i % c["S"]; }}},
    .bytes = [](const Case& c) { return c["B"] * 2 * c["bytes"]; }};

}  // namespace tessera::kernels
