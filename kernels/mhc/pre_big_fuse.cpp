// pre_big_fuse: all work before a sub-layer.
//
// Method   two launches: the projection of the residual, then everything else in mix_kernel.cpp. The
//          bound is reading the residual twice, the second time from L2 where it fits.
// Maths    projection.h, mix_sequences.h, sinkhorn.h: the sequences of the single ops.
// Tuned    H200; see projection_kernel.cpp and pick_row_tile.

#include "kernels/mhc/parts/pre_mixes.h"
#include "kernels/mhc/parts/projection.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  mhc::add_pre_mixes(c, go, /*save=*/false);
}

}  // namespace

const Op pre_big_fuse_op{
    .name = "pre_big_fuse",
    .family = "mhc",
    .purpose = "mixes and input of a sub-layer from the residual, in one",
    .signature = R"(
      residual       bf16 [T.., n, H]
      fn             f32 [M, n*H]
      scale          f32 [3]
      base           f32 [M]
      norm_weight?   f32 [n*H]
      -> post_mix    f32 [T.., n]
      -> comb_mix    f32 [T.., n, n]
      -> layer_input bf16 [T.., H]
      workspace      f32 [elements()]
      param          norm_eps, pre_eps, sinkhorn_eps float = 1e-6
      param          post_mult_value float = 1
      param          sinkhorn_repeat int 1..45 = 10
      param          n_splits int 1..16 = 16
      need           n >= 1 on residual "there must be a stream"
      limit          n <= 65536 on residual "so many streams are not supported"
      need           n*H % 256 = 0 on residual "a row has the wrong number of columns"
      limit          n*H <= 16777216 on residual "rows this long are not supported"
      need           M >= 1 on fn "there must be a row"
      limit          M <= 32 on fn "so many rows are not supported"
      limit          T * M <= 2147483647 on residual "so many tokens are not supported"
      limit          n <= 4 on residual "so many streams are not supported"   # sinkhorn.h
      need           M = n*(n+2) on fn "argument 'fn' has the wrong number of rows"
      bucket         T at 129
    )",
    .launches = launches,
    .functions = {{"elements", mhc::projection_elements}},
    .examples = R"(
      T=13 n=4 H=1280; T=600 n=4 H=256 norm_weight=given; T=9 n=3 H=256; T=5 n=1 H=512)",
    .bench = R"(
      T=1 n=4 H=7168; T=16 n=4 H=7168; T=128 n=4 H=7168; T=512 n=4 H=7168; T=4096 n=4 H=7168
      T=8192 n=4 H=7168; T=8192 n=4 H=4096)",
    .case_words = {{"M", [](const Case& c) { return c["n"] * (c["n"] + 2); }}}};

}  // namespace tessera::kernels
