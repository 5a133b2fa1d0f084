#pragma once
// The gated activation inside kernels.

#include "dsl/builder.h"

namespace tessera::kernels {

/// A gate and what it gates, f32. NaN stays through the clamps.
struct GatedPair {
  dsl::Value gate, up;

  /// gate at most `clamp`, |up| at most `clamp`.
  GatedPair clamped(const dsl::Value& clamp) const {
    using namespace dsl;
    return {min_nan(gate, clamp), max_nan(min_nan(up, clamp), -clamp)};
  }
  /// gate / (1 + exp(-gate)) * up, each step rounded.
  dsl::Value activated() const { return dsl::silu(gate) * up; }
};

}  // namespace tessera::kernels
