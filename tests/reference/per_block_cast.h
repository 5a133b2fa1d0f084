#pragma once
// The casts of blocks of rows and columns by definition.

#include "tests/reference/per_token_cast.h"

namespace tessera::reference {

struct BlockCastOptions {
  DType format = DType::e4m3;  // or e2m1
  Dims block = {128, 128};     // rows and columns that share a scale
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
};

/// Casts `x` bf16|f32 [T, H]. `out_sf` has one scale per block; the last block of a row or column
/// may be smaller. A NaN is dropped from the maximum and gets the NaN code of the format.
CastResult per_block_cast(const test::HostTensor& x, const BlockCastOptions& options);

/// The codes for given f32 scales `sf` [blocks of rows, blocks of columns]: cast(x * (1 / sf)).
test::HostTensor per_block_cast_with_precomputed_sf(const test::HostTensor& x,
                                                    const test::HostTensor& sf, DType format,
                                                    const Dims& block);

struct LosslessOptions {
  Dims x_block = {1, 32}, out_block = {1, 128};
  SfLayout x_sf_layout = SfLayout::row_major, sf_layout = SfLayout::row_major;
};

/// e2m1 codes with scales that are powers of two to e4m3 codes with larger blocks, exactly: the
/// exponent of a block of `out` is the largest one of its blocks of x less 6, at least 0, and the
/// difference goes into each code, at least -5.
CastResult per_block_cast_lossless(const test::HostTensor& x, const test::HostTensor& x_sf,
                                   const LosslessOptions& options);

}  // namespace tessera::reference
