// engram_fwd: the gate with the weights of its two norms.
//
// Method   fused_weight, then engram_gate_fwd. The product of the weights is in the workspace unless
//          it is saved.
// Maths    that of the two ops
// Tuned    H100: 515 us for 8001 tokens of 4 x 7168, 97 % of copy; see engram_gate_fwd.

#include "kernels/registry/all_ops.h"
#include "kernels/signature/chain.h"

namespace tessera::kernels {
namespace {

void parts(Chain& chain) {
  chain.add(fused_weight_op);
  chain.add(engram_gate_fwd_op);
}

int64_t elements(const Call& c) {
  return chained_elements(c, parts);
}

void launches(const Call& c, Launches& go) {
  launch_chain(c, go, parts);
}

}  // namespace

const Op engram_fwd_op{.name = "engram_fwd",
                       .family = "modeling",
                       .purpose = "the Engram gate with the weights of its two norms",
                       .signature = R"(
      hidden_states     bf16 [T.., hc, D]
      k                 bf16 [T.., hc, D] rows
      v                 bf16 [T.., D] rows
      weight_hidden, weight_embed  bf16 [hc, D]
      image_token_mask? bool [T..]       # true: out is the token's hidden_states, and what is saved 0
      -> out            bf16 [T.., hc, D]
      -> weight_fused?  f32 [hc, D]      iff save_for_backward
      -> dot?, gate_score?, rstd_x?, rstd_k?  f32 [T.., hc]    iff save_for_backward
      workspace         f32 [elements()]
      param             eps float
      param             clamp_value float = 1e-6
      param             save_for_backward bool = true
    )",
                       .launches = launches,
                       .functions = {{"elements", elements}},
                       .examples = R"(
      T=5 hc=4 D=7168 eps=1e-20; T=9 hc=4 D=4096 eps=1e-20 save_for_backward=false
      T=3 hc=2 D=512 eps=1e-20)",
                       .bench = R"(
      T=8001 hc=4 D=7168 eps=1e-20; T=8001 hc=4 D=7168 eps=1e-20 save_for_backward=false
      T=128 hc=4 D=7168 eps=1e-20 save_for_backward=false
      T=1 hc=4 D=7168 eps=1e-20 save_for_backward=false)"};

}  // namespace tessera::kernels
