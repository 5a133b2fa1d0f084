#pragma once
// The kernel of engram_gate_fwd.

#include "dsl/ir/tile.h"

namespace tessera::kernels::engram {

/// Everything that generated code depends on.
struct GateSpec {
  int32_t streams, hidden;
  uint8_t vector;         // columns of x, k, v and out per access, at most 8
  uint8_t weight_vector;  // weights per access, at most 4
  bool save;
  bool has_mask;
};

/// Tensors: hidden_states (rows of all tokens and streams), k, v, weight_fused, out (as
/// hidden_states); image_token_mask if there is one; dot, gate_score, rstd_x and rstd_k if they are
/// saved. Scalars: eps, clamp_value, tokens_per_block.
ir::Kernel build_gate(const GateSpec& s);

}  // namespace tessera::kernels::engram
