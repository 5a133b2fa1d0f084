#pragma once
// Scale factors from absolute maxima: the rule of all quantising ops.

#include <bit>

#include "dsl/builder.h"

namespace tessera::kernels {

/// A format to quantise to.
struct QuantFormat {
  float max;         // largest finite value
  float amax_floor;  // smaller maxima are raised to this
};
inline constexpr QuantFormat kE4m3 = {448.0f, 1e-4f};
inline constexpr QuantFormat kE2m1 = {6.0f, 0x1.8p-124f};  // 6 * 2^-126
inline constexpr QuantFormat kE5m6 = {65024.0f, 1e-4f};

/// The format of dtype e4m3 or e2m1.
inline const QuantFormat& quant_format(DType dtype) {
  return dtype == DType::e2m1 ? kE2m1 : kE4m3;
}

/// real ~ code * scale, code ~ real * inverse.
struct ScaleFactor {
  dsl::Value scale, inverse;
  dsl::Value exponent;  // u32, biased: the UE8M0 byte. Only for powers of two
};

/// Two IEEE divisions. With `round`, powers of two: the smallest one >= amax / max and its exact
/// inverse, for floors that keep amax / max normal. An infinite amax gives an inverse of +0.
inline ScaleFactor scale_factor(dsl::Builder& k, float largest, const dsl::Arg& amax_floor,
                                const dsl::Value& amax, bool round) {
  using namespace dsl;
  auto clamped = k.let("clamped", max(amax, amax_floor));
  if (!round) return {clamped / largest, largest / clamped, {}};
  // clamped <= largest * 2^n exactly where the rounded quotient is <= 2^n: one step of clamped's
  // mantissa changes the quotient by more than half a step. So a carry into the exponent compares
  // the mantissa with that of `largest`, without a division. Infinity counts as 2^127.
  constexpr uint32_t kBelowTwo = 0x3FFFFFFF, kInfinity = 0x7F800000;
  auto bits = reinterpret(DType::u32, clamped);
  auto exponent =
      k.let("exponent", select(bits == kInfinity, 254,
                               (bits - (std::bit_cast<uint32_t>(largest) - kBelowTwo)) >> 23));
  return {reinterpret(DType::f32, exponent << 23), reinterpret(DType::f32, (254 - exponent) << 23),
          exponent};
}
inline ScaleFactor scale_factor(dsl::Builder& k, const QuantFormat& format, const dsl::Value& amax,
                                bool round) {
  return scale_factor(k, format.max, format.amax_floor, amax, round);
}

}  // namespace tessera::kernels
