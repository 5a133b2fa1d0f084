#pragma once
// The kernel of swiglu_backward_and_per_token_cast.

#include "dsl/builder.h"

namespace tessera::kernels {

/// Everything that generated code depends on.
struct SwigluBackwardSpec {
  int32_t hidden, group;
  uint8_t align;  // bytes of x and grad_out, at most 16
  bool round_sf, has_clamp;
  bool has_rows;     // else the kernel only clears grad_weight
  bool has_entries;  // else rows have no weights
  uint8_t unused[3] = {};
};

/// Tensors: x and x_sf as [rows, 2, columns], grad_out, pos_to_token_topk; out, grad_x_fp8,
/// grad_x_fp8_sf and grad_x as [rows, 2, columns]; weight, token_topk_to_pos and grad_weight as
/// [entries]. Scalar: clamp_value if the Spec has it.
ir::Kernel build_swiglu_backward(const SwigluBackwardSpec& spec);

}  // namespace tessera::kernels
