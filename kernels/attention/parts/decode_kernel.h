#pragma once
// The two kernels of attention_decode.

#include <cstdint>

#include "dsl/builder.h"
#include "kernels/attention/parts/fwd_kernel.h"

namespace tessera::kernels::attention {

/// Everything that the generated code of the first kernel depends on.
struct DecodeSpec {
  int32_t width, value_width;                          // of a head: dk, dv
  int32_t is_f16, is_e4m3;                             // q, else bf16; the cache, else as q
  int32_t q_vector, k_vector, v_vector;                // elements that rows begin at multiples of
  int32_t is_causal, has_left, has_softcap, has_sink;  // 0 or 1
  int32_t has_parts;                                   // requests may be longer than a part
  int32_t page_size;                                   // 0: known at the call
  // No bit of the result depends on these.
  int32_t rows;           // queries of a tile that share a head of keys: 16, 32 or 64
  int32_t warps;          // that multiply: 4 or 8
  int32_t load_warps;     // 1 to 4
  int32_t stages;         // tiles of keys or of values on their way
  int32_t blocks_per_sm;  // that run at once
  int32_t by_engine;      // 1: whole pages by tensor copies
  int32_t has_moves;  // 1: registers move from the warps that load, a group of four, to the others

  /// Keys of a block: a part of the op's definition.
  int64_t keys() const { return keys_of_block(width); }
  /// Bytes of shared memory, about.
  int64_t shared_bytes() const;
};

/// Scalars besides the tensors: c, cap (f32), left, part_blocks, group (i32: heads of q that share one
/// of keys). The tensor `parts` is the workspace.
ir::Kernel build_decode(const DecodeSpec& spec);

struct JoinSpec {
  int32_t value_width, is_f16;
  int32_t is_causal, has_left, has_sink, has_v_sf;
  int32_t keys;  // of a block
};

/// Joins the parts of requests that have several. Scalars: left, part_blocks, group (i32), and
/// cache_rows (i32), the rows of the pages of a request.
ir::Kernel build_join(const JoinSpec& spec);

}  // namespace tessera::kernels::attention
