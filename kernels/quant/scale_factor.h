#pragma once
// Scale factors from absolute maxima: the rule that every quantising op shares.

#include "dsl/builder.h"

namespace tessera::kernels {

/// A format to quantise to.
struct QuantFormat {
  float max;         // largest finite value
  float amax_floor;  // smaller maxima count as this
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
  dsl::Value exponent;  // u32, biased: the UE8M0 byte. Only of powers of two
};

/// Two IEEE divisions; with `round`, powers of two: the smallest one >= amax / max and its exact
/// inverse. An infinite amax gives an inverse of +0.
inline ScaleFactor scale_factor(dsl::Builder& k, float largest, const dsl::Arg& amax_floor,
                                const dsl::Value& amax, bool round) {
  using namespace dsl;
  auto clamped = k.let("clamped", max(amax, amax_floor));
  auto quotient = clamped / largest;
  if (!round) return {quotient, largest / clamped, {}};
  // The biased exponent of the smallest power of two >= quotient; infinity is kept at 2^127.
  auto bits = reinterpret(DType::u32, quotient);
  auto exponent = k.let("exponent", min(((bits - 1) >> 23) + 1, 254));
  return {reinterpret(DType::f32, exponent << 23), reinterpret(DType::f32, (254 - exponent) << 23),
          exponent};
}
inline ScaleFactor scale_factor(dsl::Builder& k, const QuantFormat& format, const dsl::Value& amax,
                                bool round) {
  return scale_factor(k, format.max, format.amax_floor, amax, round);
}

}  // namespace tessera::kernels
