#pragma once
// per_token_cast by definition, in all its forms.

#include <optional>

#include "tests/reference/scale.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct CastOptions {
  DType format = DType::e4m3;  // or e2m1
  int64_t num_per_channels = 128;
  std::optional<Dims> x_block_size;  // {bt, bc} of a quantised x
  SfLayout x_sf_layout = SfLayout::row_major;
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
};

struct CastResult {
  test::HostTensor out;     // e4m3 [T, H], or i8 [T, H / 2] with two e2m1 codes per byte
  test::HostTensor out_sf;  // one scale per row and group of num_per_channels columns
};

/// Casts each row in groups of `num_per_channels` columns.
///
///   x      bf16|f32 [T, H], or quantised: e4m3 [T, H] | i8 [T, H / 2], with x_sf and x_block_size
///   x_sf   scales of x in x_sf_layout, null for bf16|f32
///
/// A NaN is dropped from the maximum and gets the NaN code of the format. Of a quantised x the
/// factor scale x inverse is rounded once, then multiplied by each code.
///
/// Example: per_token_cast(x, nullptr, {.format = DType::e4m3, .num_per_channels = 128}).out_sf
CastResult per_token_cast(const test::HostTensor& x, const test::HostTensor* x_sf,
                          const CastOptions& options);

/// The codes of per_token_cast for given f32 scales `sf` [T, groups]: cast(x * (1 / sf)).
test::HostTensor per_token_cast_with_precomputed_sf(const test::HostTensor& x,
                                                    const test::HostTensor& sf, DType format,
                                                    int64_t num_per_channels);

/// The values of e4m3 or e2m1 (i8) codes with scales in `layout`, one per block of {rows, columns}:
/// code x scale, rounded to `out_dtype` bf16 or f32.
test::HostTensor cast_back(const test::HostTensor& x, const test::HostTensor& x_sf, SfLayout layout,
                           const Dims& block, DType out_dtype);

/// The values of the codes in each byte, the low nibble first.
test::HostTensor unpack_from_e2m1fn_x2(const test::HostTensor& x, DType out_dtype);

/// Logical columns of a tensor that holds `format`: H of [T, H], or of i8 [T, H / 2] for e2m1.
int64_t hidden_of(const test::HostTensor& x);
/// The value of logical element (row, col); i8 means e2m1, the even column in the low nibble.
float element_of(const test::HostTensor& x, int64_t row, int64_t col);
/// Codes of [num_tokens, hidden]: e4m3, or i8 of half the width for e2m1.
test::HostTensor make_codes(DType format, int64_t num_tokens, int64_t hidden);
/// Stores the code of logical element (row, col) of an e4m3 or e2m1 (i8) tensor.
void store_code(test::HostTensor& out, int64_t row, int64_t col, uint32_t code);

}  // namespace tessera::reference
