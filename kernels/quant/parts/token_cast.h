#pragma once
// The parts that row casts with groups of columns share: the Spec of their kernels and the tiles.

#include "kernels/signature/call.h"
#include "kernels/signature/scale_layout.h"

namespace tessera::kernels {

/// Everything that generated code depends on. Some ops ignore some fields.
struct TokenCastSpec {
  DType in, format;
  SfLayout sf_layout, x_sf_layout;
  bool round_sf;
  uint8_t align;            // bytes of x, at most 16
  int16_t stride_multiple;  // power of two that divides the row stride, in elements
  int32_t hidden, group;
  int32_t block_rows, block_cols;
};
/// Makes the Spec of a call with x and some of format, num_per_channels, sf_layout, round_sf,
/// x_block_size and x_sf_layout. Without num_per_channels a whole row has one scale.
TokenCastSpec token_cast_spec(const Call& c);
/// True for 16, 32, 64 and 128 columns. Any other group is a whole row.
bool is_ordinary_group(int64_t group);

/// The part of the matrix of one thread block.
struct TokenTile {
  int64_t rows, cols;
  int threads;
  int64_t group, groups;  // columns that share a scale; groups per tile row
};
/// 32 elements in each of 128 threads: two to four 16-byte loads in flight per thread. With one
/// scale per row a block holds whole rows: a number of threads that divides a row evenly, else
/// columns are padded. `groups_together` groups stay in one tile.
TokenTile pick_token_tile(const TokenCastSpec& spec, int64_t groups_together);
/// Blocks of whole rows. Each thread has runs of `vector` columns, at most `most` columns in all.
TokenTile whole_row_tile(int64_t hidden, int64_t vector, int64_t most = 64);

}  // namespace tessera::kernels
