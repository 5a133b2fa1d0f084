#pragma once
// The kernel of swiglu_forward_and_per_token_cast.

#include "kernels/quant/scale_layout.h"

namespace tessera::kernels {

/// Everything that generated code depends on.
struct SwigluSpec {
  enum class Weights : uint8_t { none, given, all_zero };  // all_zero: an empty topk_weights

  DType in;
  SfLayout sf_layout;
  bool round_sf;
  uint8_t align;  // bytes of x, at most 16
  Weights weights;
  bool has_experts, has_clamp, has_count;
  int32_t hidden, group;
  int32_t per_thread;  // values; 8, 16 or 32, leaves results as they are
};

/// The per_thread for so many rows; the rest of `spec` is there.
int32_t values_per_thread(const SwigluSpec& spec, int64_t rows);

/// Parameters: x as [rows, 2, hidden]; pos_to_token_topk, topk_weights [slots] and pos_to_expert as
/// far as the Spec has them; out, out_sf; clamped_count if it has that. Scalars: amax_floor and,
/// with a clamp, clamp_value.
ir::Kernel build_swiglu_forward(const SwigluSpec& spec);

}  // namespace tessera::kernels
