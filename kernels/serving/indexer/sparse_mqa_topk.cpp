// sparse_mqa_topk: the keys with the best scores among those of chosen blocks, exactly.
//
// Method   the blocks of a row in ascending order, each once (parts/listed_blocks.cpp); the scores of their keys, as
//          sparse_mqa_logits; topk_select's kernel, whose columns are these keys. Lists and scores pass through the workspace.
// Maths    that of mqa_logits and of topk_select; keys of -inf are not chosen

#include <algorithm>
#include <bit>
#include <set>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/indexer/parts/blocks_call.h"
#include "kernels/serving/indexer/parts/logits_call.h"
#include "kernels/serving/parts/select_call.h"
#include "kernels/serving/parts/select_values.h"
#include "kernels/signature/case_values.h"

namespace tessera::kernels {
namespace {

constexpr serving::OutPages kPages = {"out_page_table", "out_page_size"};

/// Scores begin at multiples of 16 bytes behind the lists.
int64_t listed_elements(const Call& c) {
  return (c["S"] * c["C"] + 3) / 4 * 4;
}

int64_t elements(const Call& c) {
  return listed_elements(c) + c["S"] * c["C"] * c["block_size"];
}

void launches(const Call& c, Launches& go) {
  const int64_t rows = c["S"], count = c["C"], columns = count * c["block_size"];
  if (count == 0) {
    return go.add(serving::build_no_indices, serving::PadSpec{c.i32("topk")}, {}, "none");
  }
  const TensorView& workspace = c.given("workspace");
  auto* memory = static_cast<float*>(workspace.data);
  const TensorView listed(memory, DType::i32, {rows, count}, c.device());
  const TensorView scores(memory + listed_elements(c), DType::f32, {rows, columns}, c.device());
  go.add(serving::build_listed, serving::ListedSpec{c.i32("C")}, {.tensors = {{"listed", listed}}},
         "listed");
  serving::add_logits_of_blocks(c, go, listed, scores);
  serving::SelectSpec s{};
  s.from = serving::SelectFrom::blocks;
  s.block_shift = static_cast<uint8_t>(std::countr_zero(static_cast<uint64_t>(c["block_size"])));
  s.topk = c.i32("topk");
  s.score_bytes = 4;
  s.is_aligned = columns % 4 == 0;
  s.by_value = c.word("order") == "value";
  s.has_pages = c.has("out_page_table");
  s.has_out_table = s.has_pages;
  s.is_relative = c.flag("relative") && c.has("k_start");
  const int32_t page_shift = std::countr_zero(static_cast<uint64_t>(c["out_page_size"]));
  Args args{.tensors = {{"scores", scores},
                        {"blocks", listed},
                        {"page_table", c.given("out_page_table")}},
            .scalars = {{"page_shift", page_shift},
                        {"rows_of_table", s.has_pages && c["R"] > 0 ? rows / c["R"] : 1}}};
  serving::add_select(c, go, s, rows, columns, args);
}

void require(const Call& c) {
  serving::require_chosen_blocks(c);
  serving::require_out_pages(c, kPages, c["S"]);
}

void require_values_of(const Call& c) {
  serving::require_chosen_keys(c);
  const TensorView& blocks = c.given("blocks");
  if (!values_are_checked(blocks)) return;
  for (int64_t row = 0; row < c["S"]; ++row) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < c["C"]; ++i) {
      const int64_t block = integer_at(blocks, row * c["C"] + i);
      c.need(block < 0 || seen.insert(block).second, "blocks",
             "argument 'blocks' names a block twice", "each block once",
             std::to_string(block) + " at " + to_string(Dims{row, i}));
    }
  }
}

}  // namespace

const Op sparse_mqa_topk_op{
    .name = "sparse_mqa_topk",
    .family = "serving",
    .purpose = "the keys with the best scores among those of chosen blocks, exactly",
    .signature = R"(
      q                e4m3 [S, h, D]
      weights          f32 [S, h] rows
      blocks           i32 [S, C] rows                      # of block_size keys, each once; negative: none
      k?               e4m3 [T, D] rows     iff not cache   # keys in rows, or in the pages of a cache
      k_sf?            f32 [T]              iff not cache
      k_start?         i32 [S]  values 0 .. T  iff not cache
      k_end?           i32 [S]  values 0 .. T  iff not cache
      cache?           u8 [P, bytes] rows
      lengths?         i32 [S]              iff cache
      page_table?      i32 [B, Q] rows      iff cache       # S in B groups of as many; a group has a row of the table
      out_page_table?  i32 [R, V] rows                      # of the cache that is read by the indices, S in R groups
      -> indices       i32 [S, topk]
      workspace        f32 [elements()]
      param  topk int 1..4096
      param  order {index, value} = index
      param  block_size int = 8
      param  page_size int = 64
      param  out_page_size int = 64
      param  relative bool = false
      param  format {index_fp8} = index_fp8
      need   1 <= page_size <= 1048576
      need   V >= 1 if out_page_table on out_page_table "argument 'out_page_table' has no columns"
      limit  topk <= 4096 "so many keys of a row are not supported"
      limit  C <= 4096 on blocks "so many blocks of a row are not supported"
      limit  S * h <= 2130706431 on q "so many queries are not supported"
      limit  S <= 266338303 on q "so many rows are not supported"
    )",
    .launches = launches,
    .check = require,
    .check_values = require_values_of,
    .functions = {{"elements", elements}},
    .examples = R"(
      S=3 h=32 D=128 C=40 T=900 topk=32
      S=4 h=32 D=128 C=20 cache=given P=40 bytes=8448 lengths=given page_table=given B=2 Q=8 topk=40 order=value out_page_table=given R=2 V=9)",
    .bench = R"(
      S=8 h=32 D=128 C=2048 cache=given P=16384 bytes=8448 lengths=given page_table=given B=8 Q=2048 topk=512
      S=256 h=32 D=128 C=2048 cache=given P=16384 bytes=8448 lengths=given page_table=given B=64 Q=2048 topk=512)",
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
               {"page_table", scattered_page},
               {"out_page_table", slot_page}},
    .bytes = [](const Case& c) {
      return c["S"] * (c["C"] * (c["block_size"] * (c["D"] + 4) + 4) + c["h"] * (c["D"] + 4) +
                       4 * c["topk"]);
    }};

}  // namespace tessera::kernels
