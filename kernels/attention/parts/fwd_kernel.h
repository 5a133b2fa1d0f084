#pragma once
// The kernel of attention_fwd and attention_varlen_fwd.

#include <cstdint>

#include "dsl/builder.h"

namespace tessera::kernels::attention {

/// Keys of a block of heads of this width.
constexpr int64_t keys_of_block(int64_t width) {
  return width > 192 ? 64 : 128;
}

/// The tile and the form of the kernel; no bit of the result depends on them.
struct ForwardTile {
  int32_t rows;      // queries
  int32_t stages;    // tiles of keys or of values on their way; 0: none, and one tile for both
  int32_t by_roles;  // 1: one role loads, another multiplies
  /// By roles. 1: as many blocks as run at once, each of them takes several tiles.
  int32_t is_persistent = 0;
};

/// Everything that generated code depends on.
struct ForwardSpec {
  int32_t width, value_width;                          // of a head: dk, dv
  int32_t is_f16;                                      // else bf16
  int32_t q_vector, k_vector, v_vector, out_vector;    // elements that rows begin at multiples of
  int32_t has_left, has_right, has_softcap, has_sink;  // 0 or 1
  int32_t has_q_lengths, has_k_lengths;
  int32_t
      is_packed;  // requests lie one behind the other: tensors have one request, cu_q and cu_k bound those in it
  ForwardTile tile;

  /// Keys of a block: a part of the op's definition.
  int64_t keys() const { return keys_of_block(width); }
};

/// Scalars besides the tensors: c, cap (f32), left, right, section (i32). Blocks of the grid take `section`
/// pairs of request and head at a time.
ir::Kernel build_forward(const ForwardSpec& spec);

}  // namespace tessera::kernels::attention
