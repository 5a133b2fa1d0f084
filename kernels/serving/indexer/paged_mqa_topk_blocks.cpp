// paged_mqa_topk_blocks: paged_mqa_topk, and the blocks of keys that later layers choose from.
//
// Method   paged_mqa_logits, topk_select and candidate_blocks, one after the other
// Maths    that of the three

#include "kernels/registry/all_ops.h"
#include "kernels/serving/indexer/parts/logits_call.h"
#include "kernels/serving/indexer/parts/topk_chain.h"
#include "kernels/signature/case_values.h"

namespace tessera::kernels {
namespace {

using Chain = serving::TopkOfPages;

void launches(const Call& c, Launches& go) {
  Chain::add(c, go, serving::Blocks::chosen);
}

void require(const Call& c) {
  Chain::require(c);
  serving::require_block_size(c);
}

}  // namespace

const Op paged_mqa_topk_blocks_op{
    .name = "paged_mqa_topk_blocks",
    .family = "serving",
    .purpose =
        "the keys of a paged cache with the best scores of each query, and the best blocks of keys",
    .signature = R"(
      q                e4m3 [B, n, h, D]
      cache            u8 [P, bytes] rows
      weights          f32 [B*n, h] rows
      lengths          i32 [B, n]                   values 0 .. max_len
      page_table       i32 [B, Q] rows
      out_page_table?  i32 [R, V] rows
      -> indices       i32 [B*n, topk]
      -> blocks        i32 [B*n, num_blocks]        # see candidate_blocks
      -> values?       f32 [B*n, topk]              iff save_values
      workspace        f32 [elements()]
      param  max_len int >= 0
      param  topk int 1..4096
      param  num_blocks int 1..4096 = 2048
      param  block_size int = 8
      param  order {index, value} = index
      param  page_size int = 64
      param  out_page_size int = 64
      param  save_values bool = false
      need   V >= 1 if out_page_table on out_page_table "argument 'out_page_table' has no columns"
      need   1 <= page_size <= 1048576
      limit  topk <= 4096 "so many keys of a row are not supported"
      limit  num_blocks <= 4096 "so many blocks of a row are not supported"
      limit  max_len <= 1073741824 "so many columns are not supported"
      limit  B * n * h <= 2130706431 on q "so many queries are not supported"
    )",
    .launches = launches,
    .check = require,
    .check_values = serving::require_index_pages,
    .functions = {{"elements", Chain::elements}},
    .examples = R"(
      B=3 n=1 h=64 D=128 P=20 Q=5 bytes=8448 max_len=300 topk=32 num_blocks=12
      B=2 n=2 h=8 D=32 P=20 Q=30 bytes=432 max_len=200 page_size=12 topk=64 num_blocks=4)",
    .bench = "B=8 n=1 h=32 D=128 P=16384 Q=2048 bytes=8448 max_len=131072 topk=512",
    .values = {{"page_table", scattered_page},
               {"out_page_table", slot_page},
               {"lengths", serving::cached_keys}}};

}  // namespace tessera::kernels
