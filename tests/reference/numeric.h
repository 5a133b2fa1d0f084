#pragma once
// Small floats by definition: a table of every magnitude of the format, and a search in it. Shares
// nothing with the code under test; slow and obvious on purpose.

#include <cstdint>

#include "dsl/base/dtype.h"

namespace tessera::reference {

/// Bits of the canonical NaN: 0x7FFFFFFF (f32), 0x7FFF (f16, bf16), 0x7F (e4m3, e5m2); e2m1 has
/// none and gives 7 (+6).
uint32_t nan_code(DType format);

/// The value of `code` in f32, f16, bf16, e4m3, e5m2 or e2m1. Exact; NaN codes give a NaN, -0 keeps
/// its sign.
///
/// Example: decode(DType::e4m3, 0x7E) is 448.
double decode(DType format, uint32_t code);

/// The code nearest to `value`, ties to the even code; the sign of zero is kept and subnormals are
/// produced. Too large: e4m3 and e2m1 saturate (infinity too), the formats with an infinity round
/// to it. NaN: nan_code(format).
///
/// Example: encode(DType::e2m1, 2.5) is 4, the code of 2.
uint32_t encode(DType format, double value);

/// Codes of the largest finite magnitude: 0x7E for e4m3, 7 for e2m1, 0x7F7FFFFF for f32, ...
uint32_t max_finite_code(DType format);

/// Bits of an IEEE single, and back.
uint32_t bits_of(float value);
float float_of(uint32_t bits);

}  // namespace tessera::reference
