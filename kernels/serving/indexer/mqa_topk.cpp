// mqa_topk: the keys with the best scores of each query of an indexer, exactly.
//
// Method   mqa_logits and topk_select, one after the other: the scores of all keys pass through the workspace, 4 bytes each
// Maths    that of the two

#include "kernels/registry/all_ops.h"
#include "kernels/serving/indexer/parts/logits_call.h"
#include "kernels/serving/indexer/parts/topk_chain.h"
#include "kernels/signature/case_values.h"

namespace tessera::kernels {
namespace {

using Chain = serving::TopkOfRows;

void launches(const Call& c, Launches& go) {
  Chain::add(c, go, serving::Blocks::none);
}

}  // namespace

const Op mqa_topk_op{
    .name = "mqa_topk",
    .family = "serving",
    .purpose = "the keys with the best scores of each query of an indexer, exactly",
    .signature = R"(
      q            e4m3 [S, h, D]
      k            e4m3 [T, D] rows
      k_sf         f32 [T]
      weights      f32 [S, h] rows
      k_start      i32 [S]          values 0 .. T
      k_end        i32 [S]          values 0 .. T  # row i chooses from the keys k_start[i] .. k_end[i] - 1
      page_table?  i32 [R, Q] rows  # S in R groups of as many; a group has a row of the table
      -> indices   i32 [S, topk]
      -> values?   f32 [S, topk]    iff save_values
      workspace    f32 [elements()]
      param  topk int 1..4096
      param  order {index, value} = index
      param  page_size int = 64
      param  relative bool = false
      param  save_values bool = false
      need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
      limit  topk <= 4096 "so many keys of a row are not supported"
      limit  S * h <= 2130706431 on q "so many queries are not supported"
      limit  T <= 2130706431 on k "so many keys are not supported"
    )",
    .launches = launches,
    .check = Chain::require,
    .check_values = serving::require_key_ranges,
    .functions = {{"elements", Chain::elements}},
    .examples = R"(
      S=5 h=64 D=128 T=300 topk=32; S=3 h=32 D=64 T=9000 topk=512 order=value save_values=true
      S=4 h=8 D=32 T=200 topk=40 page_table=given R=4 Q=4)",
    .bench = R"(
      S=4096 h=64 D=128 T=32768 topk=512; S=4096 h=64 D=128 T=131072 topk=512; S=4096 h=64 D=128 T=131072 topk=2048)",
    .values = {
        {"k_start", serving::first_key}, {"k_end", serving::end_key}, {"page_table", slot_page}}};

}  // namespace tessera::kernels
