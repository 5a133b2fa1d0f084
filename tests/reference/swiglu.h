#pragma once
// The gated activation before casts, and its gradients, by definition.

#include <array>
#include <optional>

#include "tests/reference/per_token_cast.h"

namespace tessera::reference {

struct SwigluOptions {
  int64_t num_per_channels = 128;
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
  std::optional<float> clamp_value, sf_clamp_min;
};

/// Tensors that may be absent (null).
struct SwigluTensors {
  const test::HostTensor* pos_to_token_topk = nullptr;
  const test::HostTensor* topk_weights = nullptr;
  const test::HostTensor* pos_to_expert = nullptr;
};

struct SwigluResult {
  CastResult cast;
  std::array<int64_t, 3> clamped_count{};  // of this call
};

/// One value of the activation before the cast; `exp` is correctly rounded.
float swiglu(float gate, float up, std::optional<float> clamp, std::optional<float> weight);

/// `x` bf16|f32 [P, 2H]: gate, then up. Rows with a negative expert are all zero bytes.
SwigluResult swiglu_forward_and_per_token_cast(const test::HostTensor& x,
                                               const SwigluTensors& tensors,
                                               const SwigluOptions& options);

/// The activation of each pair of bf16 [T, 2H] rounded to bf16, [T, H].
test::HostTensor swiglu_rows(const test::HostTensor& x, std::optional<float> clamp);

struct SwigluBackwardInputs {
  test::HostTensor x, x_sf;            // e4m3 [P, 2H], f32 [P, 2H / num_per_channels]
  test::HostTensor grad_out, weight;   // bf16 [P, H], f32 [T, K]
  test::HostTensor pos_to_token_topk;  // i32 [P]
  test::HostTensor token_topk_to_pos;  // i32 [T, K]
};
struct SwigluBackwardResult {
  test::HostTensor out;          // bf16 [P, H]
  CastResult grad_x_cast;        // of the gradients in f32
  test::HostTensor grad_x;       // bf16 [P, 2H]
  test::HostTensor grad_weight;  // f32 [T, K], summed in f64
};
SwigluBackwardResult swiglu_backward(const SwigluBackwardInputs& in, int64_t num_per_channels,
                                     bool round_sf, std::optional<float> clamp);

}  // namespace tessera::reference
