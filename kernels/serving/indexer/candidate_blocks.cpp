// candidate_blocks: the blocks of keys with the best scores, and that of the newest key.
//
// Dtypes   f32|bf16
// Method   topk_select's kernel, where a column is the largest score of a block, read from the scores themselves: see
//          ../parts/select_kernel.cpp. The newest key's block is the last of a row: it is written behind the others.
// Maths    none: NaN ranks as -inf, -0 as +0; a block of -inf is not chosen

#include "kernels/registry/all_ops.h"
#include "kernels/serving/indexer/parts/blocks_call.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  serving::add_blocks(c, go, c.given("scores"), c.given("lengths"));
}

}  // namespace

const Op candidate_blocks_op{
    .name = "candidate_blocks",
    .family = "serving",
    .purpose = "the blocks of keys with the best scores of each row, and that of its newest key",
    .signature = R"(
      scores     f32/bf16 [B, L] rows
      lengths    i32 [B]             values 0 .. L  # keys of a row
      -> blocks  i32 [B, num_blocks]                # ascending, then -1
      param  num_blocks int 1..4096 = 2048
      param  block_size int = 8                     # keys of a block
      limit  B <= 266338303 on scores "so many rows are not supported"
      limit  num_blocks <= 4096 "so many blocks of a row are not supported"
    )",
    .launches = launches,
    .check = serving::require_block_size,
    .examples = R"(
      B=3 L=1000 scores=f32 num_blocks=12; B=2 L=20001 scores=bf16 num_blocks=500; B=2 L=40000 scores=f32 block_size=1 num_blocks=1
      B=1 L=300000 scores=f32 num_blocks=64 block_size=32)",
    .bench = R"(
      B=8 L=131072 scores=f32; B=64 L=131072 scores=f32; B=64 L=131072 scores=bf16)",
    .values = {
        {"lengths", [](const Case& c, int64_t b) { return c["L"] - b * 77 % (c["L"] + 1); }}}};

}  // namespace tessera::kernels
