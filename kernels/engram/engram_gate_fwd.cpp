// engram_gate_fwd: the op. Its kernel and the description are in gate_kernel.cpp.

#include <algorithm>
#include <numeric>

#include "kernels/engram/parts/gate_kernel.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

engram::GateSpec spec_of(const Call& c) {
  int64_t vector = 8;
  for (const char* name : {"hidden_states", "k", "v", "out"}) {
    if (c.has(name)) vector = std::gcd(vector, common_vector(c.given(name), vector));
  }
  engram::GateSpec s;
  s.streams = c.i32("hc");
  s.hidden = c.i32("D");
  s.vector = static_cast<uint8_t>(vector);
  s.weight_vector = static_cast<uint8_t>(common_vector(c.given("weight_fused"), 4));
  s.save = c.flag("save_for_backward");
  s.has_mask = c.has("image_token_mask");
  return s;
}

void launches(const Call& c, Launches& go) {
  const engram::GateSpec spec = spec_of(c);
  const auto rows = [&](const char* name) {  // rows of all tokens and streams
    return Args::Tensor{name, reshaped(c.given(name), {c["T"] * spec.streams, spec.hidden})};
  };
  // First enough blocks for every SM, then fewer reads of the weights.
  const int64_t tokens_per_block = std::clamp<int64_t>(c["T"] * spec.streams / 2048, 1, 8);
  go.add(engram::build_gate, spec,
         {.tensors = {rows("hidden_states"), rows("out")},
          .scalars = {{"tokens_per_block", tokens_per_block}}});
}

}  // namespace

const Op engram_gate_fwd_op{
    .name = "engram_gate_fwd",
    .family = "engram",
    .purpose = "residual streams plus the value row, weighted by the gate of each stream",
    .signature = R"(
      hidden_states  bf16 [T.., hc, D]
      k              bf16 [T.., hc, D] rows
      v              bf16 [T.., D] rows
      weight_fused   f32 [hc, D]
      image_token_mask?  bool [T..]     # true: out is the token's hidden_states, and what is saved 0
      -> out         bf16 [T.., hc, D]
      -> dot?, gate_score?, rstd_x?, rstd_k?  f32 [T.., hc]    iff save_for_backward
      param          eps float
      param          clamp_value float = 1e-6
      param          save_for_backward bool = true
      need           D % 256 = 0
      need           512 <= D <= 16777216
      need           1 <= hc <= 65536
    )",
    .launches = launches,
    .examples = R"(
      T=5 hc=4 D=7168 eps=1e-20 save_for_backward=true
      T=9 hc=4 D=4096 eps=1e-20 save_for_backward=false
      T=3 hc=2 D=512 eps=1e-20 save_for_backward=true
      T=2 hc=1 D=3328 eps=1e-20 save_for_backward=false
      T=9 hc=4 D=7168 eps=1e-20 image_token_mask=given)",
    .bench = R"(
      T=8001 hc=4 D=7168 eps=1e-20 save_for_backward=true
      T=8001 hc=4 D=7168 eps=1e-20 save_for_backward=false
      T=4001 hc=4 D=4096 eps=1e-20 save_for_backward=true
      T=128 hc=4 D=7168 eps=1e-20 save_for_backward=false
      T=1 hc=4 D=7168 eps=1e-20 save_for_backward=false)"};

}  // namespace tessera::kernels
