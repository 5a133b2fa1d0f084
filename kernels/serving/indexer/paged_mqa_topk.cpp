// paged_mqa_topk: the keys of a paged cache with the best scores of the newest tokens of requests, exactly.
//
// Method   paged_mqa_logits and topk_select, one after the other: the scores of all keys pass through the workspace, 4 bytes
//          each. Slots of the cache that is read next come from a table of its own, of which a request's tokens share a row.
// Maths    that of the two

#include "kernels/registry/all_ops.h"
#include "kernels/serving/indexer/parts/logits_call.h"
#include "kernels/serving/indexer/parts/topk_chain.h"
#include "kernels/signature/case_values.h"

namespace tessera::kernels {
namespace {

using Chain = serving::TopkOfPages;

void launches(const Call& c, Launches& go) {
  Chain::add(c, go, serving::Blocks::none);
}

}  // namespace

const Op paged_mqa_topk_op{
    .name = "paged_mqa_topk",
    .family = "serving",
    .purpose = "the keys of a paged cache with the best scores of each query, exactly",
    .signature = R"(
      q                e4m3 [B, n, h, D]            # the last n tokens of each request
      cache            u8 [P, bytes] rows           # pages of page_size * D codes, then page_size scales of f32: index_fp8
      weights          f32 [B*n, h] rows
      lengths          i32 [B, n]                   values 0 .. max_len
      page_table       i32 [B, Q] rows
      out_page_table?  i32 [R, V] rows              # of the cache that is read by the indices
      -> indices       i32 [B*n, topk]
      -> values?       f32 [B*n, topk]              iff save_values
      workspace        f32 [elements()]
      param  max_len int >= 0
      param  topk int 1..4096
      param  order {index, value} = index
      param  page_size int = 64
      param  out_page_size int = 64
      param  save_values bool = false
      need   V >= 1 if out_page_table on out_page_table "argument 'out_page_table' has no columns"
      need   1 <= page_size <= 1048576
      limit  topk <= 4096 "so many keys of a row are not supported"
      limit  max_len <= 1073741824 "so many columns are not supported"
      limit  B * n * h <= 2130706431 on q "so many queries are not supported"
    )",
    .launches = launches,
    .check = Chain::require,
    .check_values = serving::require_index_pages,
    .functions = {{"elements", Chain::elements}},
    .examples = R"(
      B=3 n=1 h=64 D=128 P=20 Q=5 bytes=8448 max_len=300 topk=32
      B=2 n=2 h=8 D=32 P=20 Q=30 bytes=432 max_len=200 page_size=12 topk=64 out_page_table=given R=2 V=4 order=value save_values=true)",
    .bench = R"(
      B=1 n=1 h=64 D=128 P=4096 Q=4096 bytes=8448 max_len=262144 topk=512
      B=16 n=1 h=64 D=128 P=65536 Q=4096 bytes=8448 max_len=262144 topk=512)",
    .values = {{"page_table", scattered_page},
               {"out_page_table", slot_page},
               {"lengths", serving::cached_keys}}};

}  // namespace tessera::kernels
