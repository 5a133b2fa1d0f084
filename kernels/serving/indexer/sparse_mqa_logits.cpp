// sparse_mqa_logits: scores of the keys of chosen blocks, a list for each query.
//
// Dtypes   as mqa_logits and paged_mqa_logits; logits f32
// Method   see parts/logits_kernel.cpp: a tile has one query, and keys are gathered, in rows or in pages
// Maths    that of mqa_logits: a key has the same bits here and there

#include <algorithm>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/indexer/parts/blocks_call.h"
#include "kernels/serving/indexer/parts/logits_call.h"
#include "kernels/signature/case_values.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  serving::add_logits_of_blocks(c, go, c.given("blocks"), c.given("logits"));
}

}  // namespace

const Op sparse_mqa_logits_op{
    .name = "sparse_mqa_logits",
    .family = "serving",
    .purpose = "scores of the keys of chosen blocks for queries of several heads",
    .signature = R"(
      q            e4m3 [S, h, D]
      weights      f32 [S, h] rows
      blocks       i32 [S, C] rows                      # of block_size keys; negative: none
      k?           e4m3 [T, D] rows     iff not cache   # keys in rows, or in the pages of a cache
      k_sf?        f32 [T]              iff not cache
      k_start?     i32 [S]  values 0 .. T  iff not cache
      k_end?       i32 [S]  values 0 .. T  iff not cache
      cache?       u8 [P, bytes] rows                   # pages of page_size * D codes, then page_size scales of f32: index_fp8
      lengths?     i32 [S]              iff cache
      page_table?  i32 [B, Q] rows      iff cache       # S in B groups of as many; a group has a row of the table
      -> logits    f32 [S, C*block_size] rows         # -inf for a key that the row does not see
      param  block_size int = 8
      param  page_size int = 64
      param  format {index_fp8} = index_fp8
      need   1 <= page_size <= 1048576
      limit  S * h <= 2130706431 on q "so many queries are not supported"
      limit  C * block_size <= 1073741824 on blocks "so many columns are not supported"
    )",
    .launches = launches,
    .check = serving::require_chosen_blocks,
    .check_values = serving::require_chosen_keys,
    .examples = R"(
      S=3 h=32 D=128 C=40 T=900; S=4 h=32 D=128 C=20 cache=given P=40 bytes=8448 lengths=given page_table=given B=2 Q=8)",
    .bench = R"(
      S=8 h=32 D=128 C=2048 cache=given P=16384 bytes=8448 lengths=given page_table=given B=8 Q=2048
      S=256 h=32 D=128 C=2048 cache=given P=16384 bytes=8448 lengths=given page_table=given B=64 Q=2048)",
    .values = {{"blocks",
                [](const Case& c, int64_t i) {
                  const bool is_paged = c.has("cache");
                  const int64_t keys = is_paged ? c["Q"] * c["page_size"] : c["T"];
                  const int64_t all = std::max<int64_t>(keys / c["block_size"], 1);
                  return i % c["C"] * std::max<int64_t>(all / c["C"], 1) % all;
                }},
               {"k_start", [](const Case&, int64_t) -> int64_t { return 0; }},
               {"k_end", [](const Case& c, int64_t i) { return std::max<int64_t>(c["T"] - i, 0); }},
               {"lengths", [](const Case& c, int64_t) { return c["Q"] * c["page_size"]; }},
               {"page_table", scattered_page}},
    .bytes = [](const Case& c) {
      return c["S"] * (c["C"] * (c["block_size"] * (c["D"] + 8) + 4) + c["h"] * (c["D"] + 4));
    }};

}  // namespace tessera::kernels
