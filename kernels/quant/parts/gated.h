#pragma once
// The gated activation inside kernels.

#include <optional>

#include "dsl/builder.h"

namespace tessera::kernels {

/// A gate and its up value, f32. Clamps keep NaN.
struct GatedPair {
  dsl::Value gate, up;

  /// Clamps gate to at most `clamp` and |up| to at most `clamp`.
  GatedPair clamped(const dsl::Value& clamp) const {
    using namespace dsl;
    return {min_nan(gate, clamp), max_nan(min_nan(up, clamp), -clamp)};
  }
  /// gate / (1 + exp(-gate)) * up, each step rounded.
  dsl::Value activated() const { return dsl::silu(gate) * up; }
};

/// The activation of a pair, and the gradients of its two halves times `weight`; a gradient is 0
/// where a clamp held.
struct GatedGradient {
  dsl::Value activation, gate, up;
};
inline GatedGradient gated_gradient(dsl::Builder& k, GatedPair pair, const dsl::Value& grad_out,
                                    const dsl::Value& weight,
                                    const std::optional<dsl::Value>& clamp) {
  using namespace dsl;
  pair = {k.let("x", pair.gate), k.let("y", pair.up)};
  const GatedPair given = pair;
  if (clamp) {
    pair = pair.clamped(*clamp);
    pair = {k.let("clamped_x", pair.gate), k.let("clamped_y", pair.up)};
  }
  auto s = k.let("s", 1.0f / (1.0f + exp(-pair.gate)));
  auto scaled = k.let("scaled", grad_out * weight * s);
  auto dx = scaled * pair.up * fma(pair.gate, 1.0f - s, 1.0f);
  auto dy = scaled * pair.gate;
  if (!clamp) return {pair.activated(), dx, dy};
  return {pair.activated(), select(given.gate > *clamp, 0.0f, dx),
          select(given.up > *clamp || given.up < -*clamp, 0.0f, dy)};
}

}  // namespace tessera::kernels
