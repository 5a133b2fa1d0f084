// mqa_topk_blocks: mqa_topk, and the blocks of keys that later layers choose from.
//
// Method   mqa_logits, topk_select and candidate_blocks, one after the other
// Maths    that of the three

#include "kernels/registry/all_ops.h"
#include "kernels/serving/indexer/parts/logits_call.h"
#include "kernels/serving/indexer/parts/topk_chain.h"
#include "kernels/signature/case_values.h"

namespace tessera::kernels {
namespace {

using Chain = serving::TopkOfRows;

void launches(const Call& c, Launches& go) {
  Chain::add(c, go, serving::Blocks::chosen);
}

void require(const Call& c) {
  Chain::require(c);
  serving::require_block_size(c);
}

}  // namespace

const Op mqa_topk_blocks_op{
    .name = "mqa_topk_blocks",
    .family = "serving",
    .purpose =
        "the keys with the best scores of each query of an indexer, and the best blocks of keys",
    .signature = R"(
      q            e4m3 [S, h, D]
      k            e4m3 [T, D] rows
      k_sf         f32 [T]
      weights      f32 [S, h] rows
      k_start      i32 [S]               values 0 .. T
      k_end        i32 [S]               values 0 .. T
      page_table?  i32 [R, Q] rows  # S in R groups of as many; a group has a row of the table
      -> indices   i32 [S, topk]
      -> blocks    i32 [S, num_blocks]   # see candidate_blocks
      -> values?   f32 [S, topk]         iff save_values
      workspace    f32 [elements()]
      param  topk int 1..4096
      param  num_blocks int 1..4096 = 2048
      param  block_size int = 8
      param  order {index, value} = index
      param  page_size int = 64
      param  relative bool = false
      param  save_values bool = false
      need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
      limit  topk <= 4096 "so many keys of a row are not supported"
      limit  num_blocks <= 4096 "so many blocks of a row are not supported"
      limit  S * h <= 2130706431 on q "so many queries are not supported"
      limit  T <= 2130706431 on k "so many keys are not supported"
    )",
    .launches = launches,
    .check = require,
    .check_values = serving::require_key_ranges,
    .functions = {{"elements", Chain::elements}},
    .examples = R"(
      S=5 h=64 D=128 T=300 topk=32 num_blocks=12; S=3 h=8 D=32 T=200 topk=5 num_blocks=1 block_size=16 order=value)",
    .bench = "S=2048 h=32 D=128 T=131072 topk=512",
    .values = {
        {"k_start", serving::first_key}, {"k_end", serving::end_key}, {"page_table", slot_page}}};

}  // namespace tessera::kernels
