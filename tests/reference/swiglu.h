#pragma once
// swiglu_forward_and_per_token_cast by definition.

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

}  // namespace tessera::reference
