// norm_fn_fwd: the projection of the normalised residual and its sum of squares.
//
// Method   two launches: the projection writes partial sums of the columns; norm_kernel.cpp adds and
//          scales them

#include "kernels/mhc/parts/norm_kernel.h"
#include "kernels/mhc/parts/projection.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  const mhc::ProjectionShape shape = mhc::projection_shape(c);
  mhc::add_projection(c, go, /*is_last_reader=*/true);
  const mhc::NormSpec spec = {static_cast<int32_t>(shape.entries),
                              static_cast<int32_t>(shape.width),
                              c.flag("save_for_backward") ? 1 : 0, shape.tokens <= 512 ? 1 : 0,
                              mhc::PartSum(shape, c.align({"workspace"}))};
  go.add(mhc::build_norm, spec, {.tensors = mhc::projected_parts(c)});
}

}  // namespace

const Op norm_fn_fwd_op{
    .name = "norm_fn_fwd",
    .family = "mhc",
    .purpose = "projection of the normalised residual, from which the mixes are made",
    .signature = R"(
      residual       bf16 [T.., n, H]
      fn             f32 [M, n*H]
      norm_weight?   f32 [n*H]
      -> out         f32 [T.., M]
      -> out_mul?    f32 [T.., M]      iff save_for_backward
      -> sqrsum?     f32 [T..]         iff save_for_backward
      workspace      f32 [elements()]
      param          norm_eps float = 1e-6
      param          n_splits int 1..16 = 16
      param          save_for_backward bool = true
      need           n >= 1 on residual "there must be a stream"
      limit          n <= 65536 on residual "so many streams are not supported"
      need           n*H % 256 = 0 on residual "a row has the wrong number of columns"
      limit          n*H <= 16777216 on residual "rows this long are not supported"
      need           M >= 1 on fn "there must be a row"
      limit          M <= 32 on fn "so many rows are not supported"
      limit          T * M <= 2147483647 on residual "so many tokens are not supported"
      bucket         T at 129, 513                # halves of parts; rows of a block
    )",
    .launches = launches,
    .functions = {{"elements", mhc::projection_elements}},
    .examples = R"(
      T=13 n=4 H=1280 n_splits=16; T=600 n=4 H=256 n_splits=16 norm_weight=given
      T=2050 n=4 H=64 n_splits=1; T=9 n=2 H=384 n_splits=3)",
    .bench = R"(
      T=1 n=4 H=7168 n_splits=16; T=16 n=4 H=7168 n_splits=16; T=128 n=4 H=7168 n_splits=16
      T=512 n=4 H=7168 n_splits=16; T=4096 n=4 H=7168 n_splits=16; T=8192 n=4 H=7168 n_splits=16
      T=4096 n=4 H=7168 n_splits=1; T=4096 n=4 H=2560 n_splits=1; T=8192 n=4 H=4096 n_splits=1
      T=8192 n=4 H=4096 n_splits=16)",
    .case_words = {{"M", [](const Case& c) { return c["n"] * (c["n"] + 2); }}}};

}  // namespace tessera::kernels
