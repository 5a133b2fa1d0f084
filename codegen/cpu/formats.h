#pragma once
// Number formats narrower than f32: encode and decode by integer arithmetic without branches, so
// that a loop over a column becomes vector code. Rounding is to nearest even; decoding is exact; a
// NaN becomes the canonical one.

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tessera::codegen::cpu {

inline constexpr uint32_t kCanonicalNan = 0x7FFFFFFFu;
inline constexpr uint32_t kInfinity = 0x7F800000u;

/// A float of 1 sign, `Exponent` and `Mantissa` bits. Codes of a magnitude above `MaxCode` do not
/// come out of encode(): they become `MaxCode`, which is infinity for IEEE-like formats and the
/// largest finite value for saturating ones.
template <class StorageType, uint32_t Exponent, uint32_t Mantissa, uint32_t MaxCode,
          uint32_t NanCode, bool HasInfinity>
struct NarrowFloat {
  using Storage = StorageType;
  static constexpr uint32_t kShift = 23 - Mantissa;
  static constexpr uint32_t kBias = (1u << (Exponent - 1)) - 1;
  static constexpr uint32_t kRebias = (127 - kBias) << 23;
  static constexpr uint32_t kSign = 1u << (Exponent + Mantissa);
  static constexpr uint32_t kMagnitude = kSign - 1;
  // The unit of the subnormals is 2^(1 - bias - Mantissa).
  static constexpr float kUnit = std::bit_cast<float>((128 - kBias - Mantissa) << 23);

  static Storage encode(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t sign = (bits >> 31) << (Exponent + Mantissa);
    const uint32_t even = (magnitude >> kShift) & 1u;
    uint32_t code = (magnitude + ((1u << (kShift - 1)) - 1) + even - kRebias) >> kShift;
    if constexpr (kBias != 127) {
      // Adding a power of two whose last place is the unit makes the float adder round a subnormal.
      constexpr uint32_t kMagic = (151 - kBias - Mantissa) << 23;
      const float shifted = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic);
      const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - kMagic;
      code = magnitude < ((128 - kBias) << 23) ? subnormal : code;
    }
    code = code < MaxCode ? code : MaxCode;
    return static_cast<Storage>(magnitude > kInfinity ? NanCode : code | sign);
  }

  static float decode(Storage storage) {
    const uint32_t code = storage & kMagnitude;
    const uint32_t sign = static_cast<uint32_t>(storage & kSign) << (31 - Exponent - Mantissa);
    uint32_t bits = (code << kShift) + kRebias;
    if constexpr (kBias != 127) {
      const float subnormal = static_cast<float>(static_cast<int32_t>(code)) * kUnit;
      bits = code < (1u << Mantissa) ? std::bit_cast<uint32_t>(subnormal) : bits;
    }
    if constexpr (HasInfinity) bits = code >= MaxCode ? kInfinity : bits;
    bits |= sign;
    // e2m1 has no NaN; NanCode is an ordinary number there.
    if constexpr (NanCode > MaxCode) bits = code > MaxCode ? kCanonicalNan : bits;
    return std::bit_cast<float>(bits);
  }
};

using F16 = NarrowFloat<uint16_t, 5, 10, 0x7C00, 0x7FFF, true>;
using Bf16 = NarrowFloat<uint16_t, 8, 7, 0x7F80, 0x7FFF, true>;
using E4m3 = NarrowFloat<uint8_t, 4, 3, 0x7E, 0x7F, false>;  // saturates at 448
using E5m2 = NarrowFloat<uint8_t, 5, 2, 0x7C, 0x7F, true>;   // overflows to infinity
using E2m1 = NarrowFloat<uint8_t, 2, 1, 0x07, 0x07, false>;  // saturates at 6, NaN becomes 6

/// f32 with the interface of the narrow formats: encode() makes a NaN canonical.
struct F32 {
  using Storage = float;
  static float encode(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return std::bit_cast<float>((bits & 0x7FFFFFFFu) > kInfinity ? kCanonicalNan : bits);
  }
  static float decode(float value) { return value; }
};

/// An integer as f32, rounded to odd: a later rounding to at most 22 bits then equals one rounding
/// of the integer.
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

/// Truncates toward zero; out of range saturates, NaN gives 0.
template <class Integer>
Integer saturate(float value) {
  using Limits = std::numeric_limits<Integer>;
  // One above the largest value is a power of two, so it is exact in f32; the largest value itself
  // may not be.
  constexpr float kAbove = static_cast<float>(Integer{1} << (Limits::digits - 1)) * 2.0f;
  constexpr auto kLowest = static_cast<float>(Limits::min());
  if (value >= kAbove) return Limits::max();
  if (value <= kLowest) return Limits::min();
  return value == value ? static_cast<Integer>(value) : Integer{0};
}

}  // namespace tessera::codegen::cpu
