#pragma once
// The sums of matrix instructions: by the rule that every target approximates, and by the arithmetic of
// the tensor cores of sm_90, to the bit.
//
// One instruction adds all of its k at once. A product with a zero factor takes no part, nor does a zero
// sum before. Every other product is exact; let e be the largest exponent of all terms, taken as the sum
// of the exponents of the factors. Every term is truncated toward zero to `kept` bits below 2^e, the
// terms are added exactly, and the result is truncated to `stored` mantissa bits. An empty or vanishing
// sum is +0. Found on an H200, with the recorded sums of tests/golden/mma_sums.txt.

#include <cstddef>
#include <cstdint>

#include "dsl/base/dtype.h"

namespace tessera::codegen::cpu {

inline constexpr int kMaxDepth = 32;  // of an instruction: bytes

/// A factor of a product as tensor cores decompose it: significand * 2^place, and the exponent of its
/// leading place. Subnormals have the exponent of the smallest normal number.
struct Factor {
  enum class Kind : uint8_t { zero, number, infinity, nan };
  Kind kind = Kind::zero;
  bool negative = false;
  int32_t significand = 0;
  int32_t place = 0, lead = 0;
};

/// The raw bits of an operand: bf16, f16, e4m3, e5m2; of f32 the 19 bits of tf32.
Factor factor_of(DType dtype, uint32_t raw);
/// The same for an 8-bit float widened to f16, which has no subnormals then.
Factor widened_factor_of(DType dtype, uint32_t raw);

struct SumRule {
  int kept = 25, stored = 23;
};
inline constexpr SumRule kLongSums{25, 23};   // bf16, f16, tf32
inline constexpr SumRule kShortSums{13, 13};  // 8-bit floats by wgmma

/// The bits of c + a[0] * b[0] + .. of one instruction; c has the bits of an f32. A NaN is 0x7FFFFFFF.
uint32_t sum_of_products(uint32_t c, const Factor* a, const Factor* b, int count, SumRule rule);

/// Truncates total * 2^quantum to the bits of an f32 with so many stored mantissa bits.
uint32_t truncated(int64_t total, int32_t quantum, int stored);

}  // namespace tessera::codegen::cpu
