#pragma once
// swiglu_fwd and swiglu_bwd by definition.

#include <optional>

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct SwigluRowsOptions {
  DType out_dtype = DType::bf16;
  std::optional<float> factor, clamp;
  int64_t alignment = 128;
  bool save_out = false;
};

/// gate / (1 + exp(-gate)) up, times topk_weights and the factor, of the rows that an expert owns; other
/// rows are +0. Expert e owns rows align(psum[e - 1]) .. psum[e] - 1 once the ends are cut into ascending
/// order within P; without psum all rows count.
///
///   tensors   x bf16 or f32 [P, 2H]; psum i32 [E], topk_weights f32 [P], clamped_count i64 [4] or none
///   returns   out, and clamped_count if it was given
test::HostTensors swiglu_fwd(const test::HostTensors& tensors, const SwigluRowsOptions& options);

/// The gradients of x; of the weights, lane_sum of grad_out and the activation, times the factor; and out.
test::HostTensors swiglu_bwd(const test::HostTensors& tensors, const SwigluRowsOptions& options);

}  // namespace tessera::reference
