#pragma once
// Encodes and decodes floats narrower than f32 on the host. Branch-free integer arithmetic, so that
// loops over arrays are vectorised.

#include <bit>
#include <cstdint>

namespace tessera {
namespace small_float {

inline constexpr uint32_t kCanonicalNan = 0x7FFFFFFFu;
inline constexpr uint32_t kInfinity = 0x7F800000u;

/// A float of 1 sign, `Exponent` and `Mantissa` bits. encode() rounds to nearest even, decode() is
/// exact; a NaN becomes the canonical one. encode() clamps larger magnitudes to `MaxCode`: infinity
/// for IEEE-like formats, the largest finite value for saturating ones.
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
      // Adding a power of two whose unit in the last place is the subnormal unit lets the float
      // adder round.
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
using E4m3 = NarrowFloat<uint8_t, 4, 3, 0x7E, 0x7F, false>;
using E5m2 = NarrowFloat<uint8_t, 5, 2, 0x7C, 0x7F, true>;
using E2m1 = NarrowFloat<uint8_t, 2, 1, 0x07, 0x07, false>;

}  // namespace small_float

/// The nearest code of a value, ties to even, and the value of a code; kernels compute the same.
/// Beyond the largest value: infinity for f16, bf16 and e5m2, +-448 for e4m3.
///
/// Example: std::vector<uint16_t> codes(values.size());
///          std::transform(values.begin(), values.end(), codes.begin(), to_bf16);
inline uint16_t to_f16(float value) {
  return small_float::F16::encode(value);
}
inline float from_f16(uint16_t code) {
  return small_float::F16::decode(code);
}
inline uint16_t to_bf16(float value) {
  return small_float::Bf16::encode(value);
}
inline float from_bf16(uint16_t code) {
  return small_float::Bf16::decode(code);
}
inline uint8_t to_e4m3(float value) {
  return small_float::E4m3::encode(value);
}
inline float from_e4m3(uint8_t code) {
  return small_float::E4m3::decode(code);
}
inline uint8_t to_e5m2(float value) {
  return small_float::E5m2::encode(value);
}
inline float from_e5m2(uint8_t code) {
  return small_float::E5m2::decode(code);
}

}  // namespace tessera
