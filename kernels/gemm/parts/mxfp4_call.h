#pragma once
// From a call of a product with MXFP4 weights to its kernel.

#include <span>

#include "kernels/gemm/parts/mxfp4_kernel.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::gemm {

/// The tiles of the products by roles, for operand e4m3; bf16 takes steps of 64.
std::span<const Tile> mxfp4_tiles();

/// Adds the kernel of a call with tensors a, a_sf, b, b_shift, b_sf, bias, out and extents N and K.
void add_mxfp4(const Call& c, Launches& go, MxGroups groups);

/// Throws unless b_sf has a scale per row or, for e4m3, per row and 128 of k.
void check_mxfp4(const Call& c);

/// Extents of the weights of a case: the bytes of a tile, its tiles of rows and of k, the blocks of k.
int64_t tile_bytes_of(const Case& c);
int64_t row_tiles_of(const Case& c);
int64_t depth_tiles_of(const Case& c);
int64_t depth_blocks_of(const Case& c);
/// Columns of a_sf of a case.
int64_t scale_columns_of(const Case& c);

}  // namespace tessera::kernels::gemm
