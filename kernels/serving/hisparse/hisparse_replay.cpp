// hisparse_replay: copies the rows of a list of misses from the host again, for a further layer: row_copy.cpp.
//
// Dtypes   rows of bytes, list i64, counts i32
// Method   see row_copy.cpp. The bound is bytes / the rate of the host's link.
// Maths    none

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/hisparse/parts/row_copy.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  serving::add_row_copies(c, go, c.given("miss_list"), c.given("miss_count"));
}

void check(const Call& c) {
  for (const char* rows : {"host", "cache"}) serving::require_aligned_rows(c, rows);
}

void check_values(const Call& c) {
  const TensorView &list = c.given("miss_list"), &counts = c.given("miss_count");
  require_values(c.check(), "miss_count", counts, 0, c["N"]);
  if (!values_are_checked(list) || !values_are_checked(counts)) return;
  for (int64_t i = 0; i < list.size(); ++i) {
    const int64_t b = i / 2 / c["N"], entry = i / 2 % c["N"];
    if (entry >= integer_at(counts, b)) continue;
    const int64_t row = integer_at(list, i), rows = i % 2 == 0 ? c["S"] : c["slots"];
    c.need(row < rows, "miss_list", out_of_range("miss_list"),
           "at most " + std::to_string(rows - 1) + ", or -1",
           std::to_string(row) + " at " + to_string(Dims{b, entry, i % 2}));
  }
}

}  // namespace

const Op hisparse_replay_op{
    .name = "hisparse_replay",
    .family = "serving",
    .purpose = "copies the rows that hisparse_swap_in missed from the host, for a further layer",
    .signature = R"(
      miss_list       i64 [B, N, 2]        # host row, device row; negative: none
      miss_count      i32 [B]              # entries of the list that count
      host            u8 [S, bytes] rows   # pinned and mapped
      -> inout cache  u8 [slots, bytes] rows
      need   bytes % 16 = 0 on host "a row has the wrong number of bytes"
      limit  B * N <= 2130706431 on miss_list "so many entries are not supported"
      limit  S <= 2130706431 on host "so many rows are not supported"
      limit  slots <= 2130706431 on cache "so many rows are not supported"
    )",
    .launches = launches,
    .check = check,
    .check_values = check_values,
    .examples = "B=3 N=40 S=90 slots=130 bytes=656; B=1 N=3 S=9 slots=9 bytes=16 host.strides=32,1",
    .bench = R"(
      B=1 N=2048 S=8192 slots=4097 bytes=512 misses=2; B=100 N=2048 S=8192 slots=409700 bytes=512 misses=2
      B=100 N=2048 S=65536 slots=409700 bytes=512 misses=410; B=100 N=2048 S=65536 slots=409700 bytes=576 misses=410)",
    .case_words = {{"misses", [](const Case& c) { return c["N"] * 2 / 3; }}},
    .values = {{"miss_list",
                [](const Case& c, int64_t i) {
                  const int64_t entry = i / 2, rows = i % 2 == 0 ? c["S"] : c["slots"];
                  if (i % 2 == 0) return entry * 7919 % rows;
                  // No two entries that count have one row.
                  return entry / c["N"] * c["misses"] + entry % c["N"] % rows;
                }},
               {"miss_count", [](const Case& c, int64_t) { return c["misses"]; }}},
    .bytes = [](const Case& c) { return c["B"] * c["misses"] * (2 * c["bytes"] + 16); }};

}  // namespace tessera::kernels
