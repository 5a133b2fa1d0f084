#pragma once
// What the ops that cast rows in groups of columns share: the form of their kernels and how the work
// is cut into tiles.

#include "kernels/quant/scale_layout.h"
#include "kernels/signature/call.h"

namespace tessera::kernels {

/// Everything that generated code depends on; not every op looks at all of it.
struct TokenCastSpec {
  DType in, format;
  SfLayout sf_layout, x_sf_layout;
  bool round_sf;
  uint8_t align;            // bytes of x, at most 16
  int16_t stride_multiple;  // elements, of the row stride: a power of two
  int32_t hidden, group;
  int32_t block_rows, block_cols;
};
/// Of a call with x and some of format, num_per_channels, sf_layout, round_sf, x_block_size and
/// x_sf_layout; without num_per_channels a scale is for a whole row.
TokenCastSpec token_cast_spec(const Call& c);
/// 16, 32, 64 and 128 columns; any other group stands for a whole row.
bool is_ordinary_group(int64_t group);

/// The part of the matrix that one block of threads works on.
struct TokenTile {
  int64_t rows, cols;
  int threads;
  int64_t group, groups;  // columns that share a scale, and how many such groups
};
/// 32 elements per thread of 128: two to four 16-byte loads in flight each. With one scale per row
/// the block holds whole rows: as many threads along a row as divide it evenly, else columns are
/// padded. `groups_together` groups stay in one tile.
TokenTile pick_token_tile(const TokenCastSpec& spec, int64_t groups_together);
/// Blocks of whole rows, each thread with runs of `vector` columns, at most `most` in all.
TokenTile whole_row_tile(int64_t hidden, int64_t vector, int64_t most = 64);

}  // namespace tessera::kernels
