#pragma once
// e5m6: 12-bit floats, the upper bits of an IEEE half (sign, 5 exponent bits, 6 mantissa bits).
// Eight codes are a string of 96 bits, the first code in the highest bits, cut into three words of
// 32, the first word from the highest bits.

#include <array>

#include "dsl/builder.h"

namespace tessera::kernels::e5m6 {

inline constexpr int64_t kCodes = 8, kWords = 3;  // of one string

/// The code of `value`, a product (so that a NaN is positive) of at most the largest e5m6, 65024,
/// and an ulp; NaN gives 0x7FF.
///
/// The value is truncated, then rounded up if its low 17 bits say so: to nearest even from 2^-14
/// on. Below, truncation has dropped more than these 17 bits; the rule is the same.
inline dsl::Value encode(dsl::Builder& k, const dsl::Value& value) {
  using namespace dsl;
  constexpr uint32_t kLow = 0x1FFFF, kLargestCode = 0x7FF;
  auto bits = k.let("bits", reinterpret(DType::u32, value));
  // The product moves the exponent's bias from 127 to 15; what becomes subnormal by that loses its
  // lowest bits below bit 17, because only 7 are left.
  auto moved = reinterpret(DType::f32, bits & (0x7FFFFFFFu & ~kLow)) * 0x1p-112f;
  auto truncated = (reinterpret(DType::u32, moved) & ~kLow) | (bits & kLow);
  auto magnitude = k.let("magnitude", min(truncated, kLargestCode << 17));  // less is a NaN alone
  auto rounded = (magnitude + (kLow >> 1) + ((magnitude >> 17) & 1)) >> 17;
  return rounded | ((bits >> 20) & 0x800);
}

/// The f32 value of a code in the upper 12 of 16 bits.
inline dsl::Value decode(const dsl::Value& code_and_zeros) {
  using namespace dsl;
  return f32(reinterpret(DType::f16, cast(DType::u16, code_and_zeros)));
}

/// Word `w` of the string of these codes.
inline dsl::Value word(const std::array<dsl::Value, kCodes>& codes, int64_t w) {
  using namespace dsl;
  Value sum;
  for (int64_t n = 0; n < kCodes; ++n) {
    const int64_t shift = 20 - 12 * n + 32 * w;  // bit 0 of the code is bit `shift` of the word
    if (shift <= -12 || shift >= 32) continue;
    const Value& code = codes[static_cast<size_t>(n)];
    const Value part = shift >= 0 ? code << shift : code >> -shift;
    sum = sum.expr() ? sum | part : part;
  }
  return sum;
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
