#pragma once
// Formats that the executor adds to the small floats: f32 with their interface, and integers.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "dsl/base/small_float.h"

namespace tessera::codegen::cpu {

using small_float::Bf16;
using small_float::E2m1;
using small_float::E4m3;
using small_float::E5m2;
using small_float::F16;
using small_float::kCanonicalNan;
using small_float::kInfinity;

/// f32 with the interface of the narrow formats: encode() makes a NaN canonical.
struct F32 {
  using Storage = float;
  static float encode(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return std::bit_cast<float>((bits & 0x7FFFFFFFu) > kInfinity ? kCanonicalNan : bits);
  }
  static float decode(float value) { return value; }
};

/// The same of f64.
struct F64 {
  using Storage = double;
  static constexpr uint64_t kNan = 0x7FFFFFFFFFFFFFFFu;
  static bool is_nan(double value) {
    return (std::bit_cast<uint64_t>(value) & ~(uint64_t{1} << 63)) > 0x7FF0000000000000u;
  }
  static double encode(double value) { return is_nan(value) ? std::bit_cast<double>(kNan) : value; }
  static double decode(double value) { return value; }
};

/// Converts an f64 to f32 with round-to-odd: the next f32 toward zero, with its last bit set where that is
/// another number. A later rounding to at most 22 bits then equals one rounding of the f64.
inline float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (value != value || static_cast<double>(nearest) == value) return nearest;
  const bool is_beyond = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
  const uint32_t bits = std::bit_cast<uint32_t>(nearest) - (is_beyond ? 1u : 0u);
  return std::bit_cast<float>(bits | 1u);
}

/// Converts an integer to f32 with round-to-odd. A later rounding to at most 22 bits then equals
/// one rounding of the integer.
template <class Integer>
requires std::is_integral_v<Integer>
float round_to_odd(Integer value) {
  using Unsigned = std::make_unsigned_t<Integer>;
  const bool negative = value < 0;
  auto magnitude = static_cast<uint64_t>(
      negative ? static_cast<Unsigned>(Unsigned{0} - static_cast<Unsigned>(value))
               : static_cast<Unsigned>(value));
  const auto width = static_cast<int>(std::bit_width(magnitude));
  if (width > 24) {
    const uint64_t last_place = uint64_t{1} << (width - 24);
    const bool inexact = (magnitude & (last_place - 1)) != 0;
    magnitude = (magnitude & ~(last_place - 1)) | (inexact ? last_place : 0);
  }
  const auto result = static_cast<float>(magnitude);
  return negative ? -result : result;
}

/// Truncates toward zero. Out of range saturates, NaN gives 0.
template <class Integer, class Float>
Integer saturate(Float value) {
  using Limits = std::numeric_limits<Integer>;
  // One above the largest value is a power of two, so exact; the largest value itself may not be.
  constexpr Float kAbove = static_cast<Float>(Integer{1} << (Limits::digits - 1)) * Float{2};
  constexpr auto kLowest = static_cast<Float>(Limits::min());
  if (value >= kAbove) return Limits::max();
  if (value <= kLowest) return Limits::min();
  return value == value ? static_cast<Integer>(value) : Integer{0};
}

}  // namespace tessera::codegen::cpu
