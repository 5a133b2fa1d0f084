// mhc_pre_fwd: all work before a sub-layer, with the inputs of its gradient saved.
//
// Method   the kernels of pre_big_fuse; the kernel after the projection also writes the saved outputs,
//          a few bytes per token. So training and inference have the same bits.
// Maths    pre_big_fuse
// Tuned    H100: saving costs 0.5 % at 4096 tokens of 4 x 7168 (180.6 us); see pre_big_fuse.

#include "kernels/mhc/parts/pre_mixes.h"
#include "kernels/mhc/parts/projection.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  mhc::add_pre_mixes(c, go, c.flag("save_for_backward"));
}

}  // namespace

const Op mhc_pre_fwd_op{
    .name = "mhc_pre_fwd",
    .family = "modeling",
    .purpose = "mixes and input of a sub-layer from the residual, saving what its gradient needs",
    .signature = R"(
      residual         bf16 [T.., n, H]
      fn               f32 [M, n*H]
      scale            f32 [3]
      base             f32 [M]
      norm_weight?     f32 [n*H]
      -> layer_input   bf16 [T.., H]
      -> post_mix      f32 [T.., n]
      -> comb_mix      f32 [T.., n, n]
      -> out_mul?      f32 [T.., M]      iff save_for_backward
      -> sqrsum?       f32 [T..]         iff save_for_backward
      -> input_mixes?  f32 [T.., M]      iff save_for_backward
      -> pre_mix?      f32 [T.., n]      iff save_for_backward
      -> comb_logits?  f32 [T.., n, n]   iff save_for_backward
      workspace        f32 [elements()]
      param            norm_eps, pre_eps, sinkhorn_eps float = 1e-6
      param            post_mult_value float = 1
      param            sinkhorn_repeat int 1..45 = 10
      param            n_splits int 1..16 = 16
      param            save_for_backward bool = true
      need             n >= 1 on residual "there must be a stream"
      limit            n <= 4 on residual "so many streams are not supported"   # sinkhorn.h
      need             n*H % 256 = 0 on residual "a row has the wrong number of columns"
      limit            n*H <= 16777216 on residual "rows this long are not supported"
      need             M = n*(n+2) on fn "argument 'fn' has the wrong number of rows"
      limit            T * M <= 2147483647 on residual "so many tokens are not supported"
      bucket           T at 129
    )",
    .launches = launches,
    .functions = {{"elements", mhc::projection_elements}},
    .examples = R"(
      T=13 n=4 H=1280; T=600 n=4 H=256 norm_weight=given; T=9 n=3 H=256
      T=13 n=4 H=1280 save_for_backward=false; T=5 n=1 H=512)",
    .bench = R"(
      T=1 n=4 H=7168; T=128 n=4 H=7168; T=4096 n=4 H=7168; T=8192 n=4 H=4096
      T=4096 n=4 H=7168 save_for_backward=false)",
    .case_words = {{"M", [](const Case& c) { return c["n"] * (c["n"] + 2); }}}};

}  // namespace tessera::kernels
