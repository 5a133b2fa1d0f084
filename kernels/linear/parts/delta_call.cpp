#include "kernels/linear/parts/delta_call.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera::kernels::linear {

void require_scale(const Call& c) {
  if (!c.has_value("scale")) return;
  const double scale = c.number("scale");
  const auto single = static_cast<float>(scale);
  c.need(std::isfinite(single) && single > 0, "scale", "parameter 'scale' has a wrong value",
         "a finite number above 0, in f32 too", fmt::format("{}", scale));
}

bool has_keys_last(const TensorView& pool) {
  return pool.strides[3] != 1 && pool.strides[2] == 1;
}

dsl::Value log2_decay(const dsl::Value& g) {
  constexpr float kLog2E = 1.4426950408889634F, kLeast = -128.0F;
  const dsl::Value log = g * kLog2E;
  return select(log < kLeast, kLeast, log);
}

dsl::Value decay_of(const dsl::Value& log) {
  constexpr float kNormal = -126.0F;
  return select(log < kNormal, 0.0f, exp2_approx(log));
}

}  // namespace tessera::kernels::linear
