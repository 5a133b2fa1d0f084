#pragma once
// The kernel of swiglu_forward_and_per_token_cast and swiglu_psum_cast.

#include "kernels/signature/scale_layout.h"

namespace tessera::kernels {

/// Everything that generated code depends on.
struct SwigluSpec {
  enum class Weights : uint8_t {
    none,
    given,
    all_zero,  // an empty topk_weights
    of_rows    // a weight per row
  };
  enum class Clamp : uint8_t { none, given, counted };
  /// How a row is known to be padding: by the expert of each row, or by the ends of the experts' rows.
  enum class Experts : uint8_t { none, by_row, by_ends };

  DType in;
  SfLayout sf_layout;
  bool round_sf;
  uint8_t align;  // bytes of x, at most 16
  Weights weights;
  Clamp clamp;
  Experts experts;
  bool has_floor;  // else the floor of e4m3
  int32_t hidden, group;
  int16_t per_thread;     // values: 8, 16 or 32; does not change results
  int16_t blocks_per_sm;  // launch bound; 0: none

  bool has_count() const { return clamp == Clamp::counted; }
};

/// Tensors: x as [rows, 2, hidden]; pos_to_token_topk, topk_weights [slots] or [rows], pos_to_expert or psum if
/// the Spec has them; out, out_sf; clamped_count if the Spec counts. Scalars: amax_floor and
/// clamp_value if the Spec has them; alignment with psum.
ir::Kernel build_swiglu_forward(const SwigluSpec& spec);

}  // namespace tessera::kernels
