// engram_gate_bwd: the op. Its kernels and their descriptions are in gate_bwd_kernel.cpp and
// gate_bwd_parts.cpp.

#include <initializer_list>
#include <numeric>

#include "kernels/engram/parts/gate_bwd_kernel.h"
#include "kernels/jit/target.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

/// The most columns that one access to any of these tensors may have.
uint8_t vector_of(const Call& c, std::initializer_list<const char*> names) {
  int64_t vector = 8;
  for (const char* name : names) {
    if (c.has(name)) vector = std::gcd(vector, common_vector(c.given(name), vector));
  }
  return static_cast<uint8_t>(vector);
}

engram::GateBwdSpec spec_of(const Call& c) {
  engram::GateBwdSpec s;
  s.hidden = c.i32("D");
  s.vector = vector_of(c, {"grad_out", "hidden_states", "k", "v"});
  s.out_vector = vector_of(c, {"grad_hidden_states", "grad_k", "grad_v"});
  s.weight_vector = static_cast<uint8_t>(common_vector(c.given("weight_fused"), 4));
  s.sum_vector = static_cast<uint8_t>(c.align({"grad_w_partial"}) / 4);
  s.has_mask = c.has("image_token_mask") ? 1 : 0;
  return s;
}

/// True if one kernel does it. Must not depend on outputs: the workspace is allocated with them.
bool is_one_kernel(const Call& c) {
  return spec_of(c).vector == 8 &&
         engram::fits_one_block(c["D"], jit::shared_memory_limit(c.device()));
}

int64_t workspace_elements(const Call& c) {
  return is_one_kernel(c) ? 0 : 3 * c["T"] * engram::kStreams;
}

void launches(const Call& c, Launches& go) {
  const engram::GateBwdSpec spec = spec_of(c);
  if (c["T"] == 0) return go.add(engram::build_no_tokens, spec, {}, "no tokens");
  const int64_t rows = c["T"] * engram::kStreams, partials = c["num_persistent_blocks"];
  const auto by_row = [&](const char* name) {
    return Args::Tensor{name, reshaped(c.given(name), {rows, c["D"]})};
  };
  const bool is_one = is_one_kernel(c);
  const TensorView scores = is_one ? TensorView() : reshaped(c.given("workspace"), {3, rows});
  const Args args = {.tensors = {by_row("grad_out"),
                                 by_row("hidden_states"),
                                 by_row("grad_hidden_states"),
                                 by_row("grad_k"),
                                 {"score_gradients", scores}},
                     .scalars = {{"tokens_per_partial", (c["T"] + partials - 1) / partials}}};
  if (is_one) return go.add(engram::build_gate_bwd, spec, args, "all");
  go.add(engram::build_gate_scores, spec, args, "scores");
  go.add(engram::build_gate_rows, spec, args, "rows");
}

}  // namespace

const Op engram_gate_bwd_op{
    .name = "engram_gate_bwd",
    .family = "engram",
    .purpose = "gradients of the gate's inputs, and one partial of its weights' per run of tokens",
    .signature = R"(
      grad_out               bf16 [T.., 4, D]
      hidden_states          bf16 [T.., 4, D]
      k                      bf16 [T.., 4, D] rows
      v                      bf16 [T.., D] rows
      weight_fused           f32 [4, D]
      dot, gate_score, rstd_x, rstd_k  f32 [T.., 4]
      image_token_mask?      bool [T..]  # that of engram_gate_fwd
      -> grad_hidden_states  bf16 [T.., 4, D]
      -> grad_k              bf16 [T.., 4, D]
      -> grad_v              bf16 [T.., D]
      -> grad_w_partial      f32 [num_persistent_blocks, 4, D]
      workspace              f32 [elements()]
      param                  clamp_value float = 1e-6
      param                  num_persistent_blocks int >= 1
      need                   D % 512 = 0
      bucket                 T at 1          # no tokens
      limit                  D <= 16777216
      limit                  num_persistent_blocks <= 16777216
    )",
    .launches = launches,
    .functions = {{"elements", workspace_elements}},
    .examples = R"(
      T=5 D=7168 num_persistent_blocks=3; T=4 D=4096 num_persistent_blocks=2
      T=3 D=2560 num_persistent_blocks=4; T=3 D=7680 num_persistent_blocks=2
      T=0 D=512 num_persistent_blocks=2
      T=5 D=7168 num_persistent_blocks=3 image_token_mask=given
      T=3 D=7680 num_persistent_blocks=2 image_token_mask=given)",
    .bench = R"(
      T=8001 D=7168 num_persistent_blocks=132; T=8001 D=4096 num_persistent_blocks=132
      T=4001 D=2048 num_persistent_blocks=132; T=8001 D=8192 num_persistent_blocks=132
      T=128 D=7168 num_persistent_blocks=132; T=1 D=7168 num_persistent_blocks=132)",
    .case_words = {{"hc", [](const Case&) { return engram::kStreams; }}}};

}  // namespace tessera::kernels
