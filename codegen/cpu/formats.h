#pragma once
// Formats that the executor adds to the small floats: f32 with their interface, and integers.

#include <bit>
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

/// Converts an integer to f32 with round-to-odd. A later rounding to at most 22 bits then equals
/// one rounding of the integer.
template <class Integer>
float round_to_odd(Integer value) {
  static_assert(std::is_integral_v<Integer>);
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
template <class Integer>
Integer saturate(float value) {
  using Limits = std::numeric_limits<Integer>;
  // One above the largest value is a power of two, so exact in f32; the largest value itself may
  // not be.
  constexpr float kAbove = static_cast<float>(Integer{1} << (Limits::digits - 1)) * 2.0f;
  constexpr auto kLowest = static_cast<float>(Limits::min());
  if (value >= kAbove) return Limits::max();
  if (value <= kLowest) return Limits::min();
  return value == value ? static_cast<Integer>(value) : Integer{0};
}

}  // namespace tessera::codegen::cpu
