#pragma once
// The two kernels of gated_delta_fwd: what tokens of a chunk mean to each other, for all chunks at once; then the walk of a
// state through the chunks. chunk_kernel.cpp has the formulas.

#include "dsl/builder.h"

namespace tessera::kernels::linear {

inline constexpr int64_t kChunk = 64;    // tokens; results depend on it
inline constexpr int64_t kColumns = 64;  // of a state that four warps have

/// Everything that generated code of build_prepare depends on.
struct PrepareSpec {
  DType dtype, beta_dtype;
  bool has_norm, has_lengths, is_packed;
  uint8_t row_width;  // elements of an access to q and k
  uint8_t blocks;     // of a multiprocessor
  uint8_t unused;
  int32_t dk;
};

/// Tensors: q, k [batch, tokens, key_heads, dk], g, beta [batch, tokens, heads], lengths [batch]; packed: batch 1, and
/// cu_seqlens [bounds]. Outputs, of each chunk of a request and value head: a, p [places * heads, 64, 64], decays
/// [places * heads, 128]: E, then Z. The places of a request's chunks follow each other (chunk_tensors.h). With `has_norm` also
/// q_normed, k_normed [batch, .., key_heads, dk], 64 rows of each place, zeros after the end of a request.
/// Scalars: scale, norm_eps.
ir::Kernel build_prepare(const PrepareSpec& spec);

/// Everything that generated code of build_chunks depends on.
struct ChunkSpec {
  DType dtype, state_dtype;
  bool has_tokens;  // else states alone are copied
  bool has_norm;    // q and k are those of build_prepare
  bool has_lengths, is_packed;
  bool has_pool;  // else initial_state is read and final_state written
  bool reads_state, writes_state, has_read_slots, has_write_slots;
  bool by_roles;      // for wgmma; rows are aligned to 16 bytes
  uint8_t row_width;  // elements of an access to q, k, v
  uint8_t out_width, stages;
  uint8_t groups;  // of 64 columns in a block; above 1 by roles alone
  int32_t dk, dv;
};

/// Tensors: q, k [batch, key_tokens, key_heads, dk], v, out [batch, tokens, heads, dv / 64, 64], those of build_prepare,
/// lengths, read_slots, write_slots [batch]; pool, or initial_state and final_state, [slots, heads, dk, dv].
/// Scalars: scale; B without tokens.
ir::Kernel build_chunks(const ChunkSpec& spec);

}  // namespace tessera::kernels::linear
