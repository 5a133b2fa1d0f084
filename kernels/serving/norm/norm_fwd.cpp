// norm_fwd: root mean square norm of rows, after an optional addition: norm_kernel.cpp.

#include "kernels/registry/all_ops.h"
#include "kernels/serving/norm/parts/norm_kernel.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  serving::add_norm(c, go, serving::norm_spec(c));
}

}  // namespace

const Op norm_fwd_op{.name = "norm_fwd",
                     .family = "serving",
                     .purpose = "root mean square norm of rows, after an optional addition",
                     .signature = R"(
      x                 bf16/f32 [T.., H] rows
      weight?           as x [H]
      residual?         as x [T.., H] rows         # is added to x first
      -> out            as x [T.., H] align 16
      -> residual_out?  as x [T.., H] align 16     iff residual
      -> rstd?          f32 [T..]                  iff save_rstd
      param  norm_eps float
      param  out_scale float = 1
      param  save_rstd bool = false
      need   H >= 1 on x "argument 'x' has no columns"
      need   H % 16 = 0 on x "a row has the wrong number of columns"
      limit  H <= 16384 on x "rows this long are not supported"
      bucket T at 1024                 # weights in registers, or loaded late
    )",
                     .launches = launches,
                     .examples = R"(
      T=37 H=7168 x=bf16 weight=given norm_eps=1e-6; T=9 H=528 x=f32 residual=given norm_eps=1e-5 save_rstd=true
      T=21 H=256 x=bf16 weight=given residual=given norm_eps=1e-6 out_scale=0.5; T=5 H=4096 x=f32 weight=given norm_eps=1e-6
      T=4 H=2048 x=bf16 weight=given norm_eps=1e-6 x.strides=4096,1)",
                     .bench = R"(
      T=1 H=7168 x=bf16 weight=given norm_eps=1e-6; T=64 H=7168 x=bf16 weight=given norm_eps=1e-6
      T=512 H=7168 x=bf16 weight=given norm_eps=1e-6; T=8001 H=7168 x=bf16 weight=given norm_eps=1e-6
      T=8001 H=4096 x=bf16 weight=given norm_eps=1e-6; T=8001 H=2048 x=bf16 weight=given norm_eps=1e-6
      T=8001 H=7168 x=bf16 weight=given residual=given norm_eps=1e-6)"};

}  // namespace tessera::kernels
