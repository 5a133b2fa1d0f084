#pragma once
// The kernel of gated_delta_fwd.

#include "dsl/builder.h"

namespace tessera::kernels::linear {

inline constexpr int64_t kChunk = 64;  // tokens; results depend on it

/// Everything that generated code depends on.
struct ChunkSpec {
  DType dtype, beta_dtype, state_dtype;
  bool has_tokens;  // else states alone are copied
  bool has_norm, has_lengths;
  bool has_pool;  // else initial_state is read and final_state written
  bool reads_state, writes_state, has_read_slots, has_write_slots;
  uint8_t row_width;  // elements of an access to q, k, v
  uint8_t out_width, stages;
  uint16_t unused;
  int32_t dk, dv, columns;  // columns of a block
};

/// Tensors: q, k [batch, tokens, key_heads, dk], v, out [batch, tokens, heads, dv / columns, columns], g, beta [batch, tokens,
/// heads], lengths, read_slots, write_slots [batch]; pool, or initial_state and final_state, [slots, heads, dk, dv].
/// Scalars: scale, norm_eps; B without tokens.
ir::Kernel build_chunks(const ChunkSpec& spec);

}  // namespace tessera::kernels::linear
