#pragma once
// e5m6: 12-bit floats, the upper bits of an IEEE half (sign, 5 exponent bits, 6 mantissa bits).
// Eight codes are a string of 96 bits, the first code in the highest bits, cut into three words of
// 32, the first word from the highest bits.

#include <array>

#include "dsl/builder.h"

namespace tessera::kernels::e5m6 {

inline constexpr int64_t kCodes = 8, kWords = 3;  // of one string

/// The codes of two values, each in the upper 12 bits of a word; the bits below are not theirs.
/// Values are products (so that a NaN is positive) of at most the largest e5m6, 65024, and an ulp;
/// NaN gives 0x7FF.
///
/// A value is truncated to an f16, then its code rounded up if the low 17 bits of the f32 say so:
/// to nearest even from 2^-14 on. Below, truncation has dropped more than these 17 bits; the rule
/// is the same.
inline std::array<dsl::Value, 2> encode(dsl::Builder& k, const dsl::Value& even,
                                        const dsl::Value& odd) {
  using namespace dsl;
  auto halves = k.let("halves", f16x2_toward_zero(odd, even));
  // `odd_bit` holds the last bit of the code at bit 4. The minimum is without the 17 bits of a NaN.
  const auto rounded = [&](const Value& code, const Value& value, const Value& odd_bit) {
    auto dropped = reinterpret(DType::u32, min(value, 65536.0f)) << 15;
    return select((dropped | (odd_bit & 16)) > (1u << 31), code + (1u << 20), code);
  };
  return {k.let("code", rounded(halves << 16, even, halves)),
          k.let("code", rounded(halves, odd, halves >> 16))};
}

/// The f32 value of a code in the upper 12 of 16 bits.
inline dsl::Value decode(const dsl::Value& code_and_zeros) {
  using namespace dsl;
  return f32(reinterpret(DType::f16, cast(DType::u16, code_and_zeros)));
}

/// The string of codes in the upper 12 bits of words, as `encode` gives them.
inline std::array<dsl::Value, kWords> pack(const std::array<dsl::Value, kCodes>& codes) {
  using namespace dsl;
  // Shifts the upper bits of a code into a word from below.
  const auto append = [](const Value& word, const Value& code, int bits) {
    return (word << bits) | (code >> (32 - bits));
  };
  return {append(append(codes[0] >> 20, codes[1], 12), codes[2], 8),
          append(append(append(codes[2] >> 20, codes[3], 12), codes[4], 12), codes[5], 4),
          append(append(codes[5] >> 20, codes[6], 12), codes[7], 12)};
}

/// Code `i` of the string, followed by four zeros.
inline dsl::Value code_of(const std::array<dsl::Value, kWords>& words, const dsl::Value& i) {
  using namespace dsl;
  Value code;
  for (int64_t n = 0; n < kCodes; ++n) {
    const auto w = static_cast<size_t>(n * 12 / 32);
    const int64_t skipped = n * 12 % 32;  // bits of the word before the code
    auto shifted = skipped <= 16 ? words[w] >> (16 - skipped) : words[w] << (skipped - 16);
    if (skipped > 20) shifted = shifted | (words[w + 1] >> (48 - skipped));
    code = n == 0 ? shifted : select(i == n, shifted, code);
  }
  return code & 0xFFF0;
}

}  // namespace tessera::kernels::e5m6
