#pragma once
// e5m6 by definition: 12-bit codes, their packing, and the two ops on them.

#include <cstdint>

#include "tests/reference/scale.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// The code of a value: truncated to an IEEE half, of which the upper 12 bits stay, then one more if
/// the low 17 bits of the f32 word exceed a half (or are one, at an odd code); NaN gives 0x7FF.
///
/// Example: encode_e5m6(1.0F) is 0x3C0.
uint32_t encode_e5m6(float value);

/// Code `col` of a row of bytes, and its place. Eight codes are 96 bits, the first code in the
/// highest ones, cut into three little-endian words, the first from the highest bits.
uint32_t load_e5m6(const test::HostTensor& x, int64_t row, int64_t col);
void store_e5m6(test::HostTensor& out, int64_t row, int64_t col, uint32_t code);

struct E5m6Result {
  test::HostTensor out;     // u8 [T, H * 3 / 2]
  test::HostTensor out_sf;  // one scale per row
};
/// Casts rows of bf16|f32 [T, H], H % 8 = 0, with one scale per row.
E5m6Result per_token_cast_to_e5m6(const test::HostTensor& x, SfLayout sf_layout, bool round_sf);

/// The values of codes u8 [T, H * 3 / 2] with one scale per block of {rows, columns}: code x scale,
/// rounded to `out_dtype` bf16 or f32.
test::HostTensor cast_back_e5m6(const test::HostTensor& x, const test::HostTensor& x_sf,
                                SfLayout layout, const Dims& block, DType out_dtype);

}  // namespace tessera::reference
