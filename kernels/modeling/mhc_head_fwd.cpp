// mhc_head_fwd: mixes the last residual streams into one row.
//
// Method   norm_fn_fwd with one row of `fn` per stream, head_compute_mix_fwd, pre_apply_mix_fwd in
//          sequence; the workspace holds what is not saved
// Maths    that of the three ops
// Tuned    H100: 190 us for 4096 tokens of 4 x 7168; see norm_fn_fwd.

#include "kernels/modeling/parts/first_rows.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/chain.h"

namespace tessera::kernels {
namespace {

void parts(Chain& chain) {
  mhc::first_rows(chain, "fn", "first_fn");
  chain.add(norm_fn_fwd_op, {{"fn", "first_fn"}, {"out", "input_mix"}});
  chain.add(head_compute_mix_fwd_op, {{"out", "pre_mix"}});
  chain.add(pre_apply_mix_fwd_op, {{"x", "residual"}, {"mix", "pre_mix"}});
}

int64_t elements(const Call& c) {
  return chained_elements(c, parts);
}

void launches(const Call& c, Launches& go) {
  launch_chain(c, go, parts);
}

}  // namespace

const Op mhc_head_fwd_op{.name = "mhc_head_fwd",
                         .family = "modeling",
                         .purpose = "one row of each token from the streams of the last residual",
                         .signature = R"(
      residual        bf16 [T.., n, H]
      fn              f32 [R, n*H]      # rows behind the n-th are not used
      scale           f32 [1]
      base            f32 [n]
      norm_weight?    f32 [n*H]
      -> out          bf16 [T.., H]
      -> out_mul?     f32 [T.., n]      iff save_for_backward
      -> sqrsum?      f32 [T..]         iff save_for_backward
      -> input_mix?, pre_mix?  f32 [T.., n]    iff save_for_backward
      workspace       f32 [elements()]
      param           norm_eps, pre_eps float = 1e-6
      param           n_splits int 1..16 = 16
      param           save_for_backward bool = true
      need            n <= R and R <= 32 on fn "argument 'fn' has the wrong number of rows"
      bucket          T at 129, 513
    )",
                         .launches = launches,
                         .functions = {{"elements", elements}},
                         .examples = R"(
      T=13 n=4 H=1280; T=600 n=4 H=256 norm_weight=given R=24; T=9 n=3 H=256
      T=5 n=4 H=512 save_for_backward=false)",
                         .bench = R"(
      T=4096 n=4 H=7168; T=128 n=4 H=7168 save_for_backward=false
      T=1 n=4 H=7168 save_for_backward=false)",
                         .case_words = {{"R", [](const Case& c) { return c["n"]; }}}};

}  // namespace tessera::kernels
