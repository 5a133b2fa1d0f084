// post_bwd: the op. Its kernel and the description are in post_bwd_kernel.cpp.

#include "kernels/mhc/parts/post_bwd_kernel.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  go.add(mhc::build_post_bwd,
         mhc::PostBwdSpec{c.i32("n"), c.i32("H"),
                          c.align({"grad_out", "x", "residual", "grad_x", "grad_residual"})});
}

}  // namespace

const Op post_bwd_op{
    .name = "post_bwd",
    .family = "mhc",
    .purpose = "gradients of the residual streams behind a sub-layer and of their mixes",
    .signature = R"(
      grad_out          bf16 [T.., n, H]
      x                 bf16 [T.., H]
      residual          bf16 [T.., n, H]
      post_mix          f32 [T.., n]
      comb_mix          f32 [T.., n, n]
      -> grad_x         bf16 [T.., H]
      -> grad_residual  bf16 [T.., n, H]
      -> grad_post_mix  f32 [T.., n]
      -> grad_comb_mix  f32 [T.., n, n]
      need              n >= 1 on grad_out "there must be a stream"
      limit             n <= 4 on grad_out "so many streams are not supported"
    )",
    .launches = launches,
    .examples = R"(
      T=5 n=4 H=7168; T=3 n=4 H=2560; T=7 n=4 H=1280; T=9 n=2 H=512; T=3 n=3 H=100; T=2 n=4 H=0)",
    .bench = R"(
      T=4096 n=4 H=7168; T=4096 n=4 H=4096; T=4096 n=4 H=2560; T=4096 n=4 H=1280
      T=8192 n=4 H=7168; T=512 n=4 H=7168; T=128 n=4 H=7168; T=1 n=4 H=7168)"};

}  // namespace tessera::kernels
