#pragma once
// e5m6: 12-bit floats, the upper bits of an IEEE half (sign, 5 exponent bits, 6 mantissa bits).
// Eight codes form a 96-bit string, first code in the highest bits, stored as three 32-bit words,
// highest bits first.

#include <array>

#include "dsl/builder.h"

namespace tessera::kernels::e5m6 {

inline constexpr int64_t kCodes = 8, kWords = 3;  // of one string

/// Returns the codes of two values, each in the upper 12 bits of a word; the lower bits are
/// undefined. Values must be products (so that a NaN is positive) of at most the largest e5m6,
/// 65024, plus an ulp. NaN gives 0x7FF.
///
/// Truncates a value to f16, then rounds its code up if the low 17 bits of the f32 say so. This
/// rounds to nearest even from 2^-14 on. Below, truncation has dropped more than these 17 bits; the
/// rule is the same.
inline std::array<dsl::Value, 2> encode(dsl::Builder& k, const dsl::Value& even,
                                        const dsl::Value& odd) {
  using namespace dsl;
  auto halves = k.let("halves", f16x2_toward_zero(odd, even));
  // Bit 4 of `odd_bit` is the last bit of the code. The minimum clears the low 17 bits of a NaN.
  const auto rounded = [&](const Value& code, const Value& value, const Value& odd_bit) {
    auto dropped = reinterpret(DType::u32, min(value, 65536.0f)) << 15;
    return select((dropped | (odd_bit & 16)) > (1u << 31), code + (1u << 20), code);
  };
  return {k.let("code", rounded(halves << 16, even, halves)),
          k.let("code", rounded(halves, odd, halves >> 16))};
}

/// Returns the f32 value of a code in the upper 12 of 16 bits.
inline dsl::Value decode(const dsl::Value& code_and_zeros) {
  using namespace dsl;
  return f32(reinterpret(DType::f16, cast(DType::u16, code_and_zeros)));
}

/// Packs codes in the upper 12 bits of words, as `encode` returns them, into a string.
inline std::array<dsl::Value, kWords> pack(const std::array<dsl::Value, kCodes>& codes) {
  using namespace dsl;
  // Shifts the upper bits of a code into the low end of a word.
  const auto append = [](const Value& word, const Value& code, int bits) {
    return (word << bits) | (code >> (32 - bits));
  };
  return {append(append(codes[0] >> 20, codes[1], 12), codes[2], 8),
          append(append(append(codes[2] >> 20, codes[3], 12), codes[4], 12), codes[5], 4),
          append(append(codes[5] >> 20, codes[6], 12), codes[7], 12)};
}

/// Returns code `i` of the string, followed by four zero bits.
inline dsl::Value code_of(const std::array<dsl::Value, kWords>& words, const dsl::Value& i) {
  using namespace dsl;
  Value code;
  for (int64_t n = 0; n < kCodes; ++n) {
    const auto w = static_cast<size_t>(n * 12 / 32);
    const int64_t skipped = n * 12 % 32;  // bits of the word above the code
    auto shifted = skipped <= 16 ? words[w] >> (16 - skipped) : words[w] << (skipped - 16);
    if (skipped > 20) shifted = shifted | (words[w + 1] >> (48 - skipped));
    code = n == 0 ? shifted : select(i == n, shifted, code);
  }
  return code & 0xFFF0;
}

}  // namespace tessera::kernels::e5m6
