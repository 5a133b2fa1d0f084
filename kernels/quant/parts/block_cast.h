#pragma once
// The parts that ops on blocks of rows and columns share: input, tile, maxima and codes.

#include "kernels/quant/parts/scale_access.h"
#include "kernels/quant/parts/token_grid.h"
#include "kernels/signature/call.h"

namespace tessera::kernels {

/// Everything that generated code depends on. Some ops ignore some fields.
struct BlockCastSpec {
  DType in, format;
  SfLayout sf_layout;
  bool round_sf;
  int32_t align;  // bytes of x, at most 16
  int32_t hidden;
  int32_t block_rows, block_cols;
};
/// Makes the Spec of a call with x, format, block_size and, where the op has them, sf_layout and
/// round_sf.
BlockCastSpec block_cast_spec(const Call& c);

/// The tile of one thread block: adjacent scale blocks in one row of blocks.
struct BlockTile {
  int64_t rows, cols;
  int64_t blocks;                    // scale blocks per tile
  int64_t row_threads, col_threads;  // threads along each axis
  int64_t vector;                    // columns of one 16-byte load

  int threads() const { return static_cast<int>(row_threads * col_threads); }
};
/// Chooses eight 16-byte loads per thread, all in flight together.
BlockTile pick_block_tile(const BlockCastSpec& spec);

/// The input `x` [tokens, hidden] and its number of block rows.
struct BlockMatrix {
  dsl::Value tokens;
  dsl::Value block_rows;  // ceil(tokens / rows of a block)
  dsl::Ref x;
};
BlockMatrix declare_block_matrix(dsl::Builder& k, const BlockCastSpec& s);

/// Launches one thread block per tile. `block_rows` counts the rows of scale blocks, padding
/// included; `row` of the result is one of them. With `layout` packed_ue8m0 a tile covers whole
/// words of scales.
TileOrigin launch_blocks(dsl::Builder& k, const BlockCastSpec& s, const BlockTile& tile,
                         const dsl::Value& block_rows, SfLayout layout);

/// Loads the tile into registers, (rows, cols); elements outside of the matrix are 0.
dsl::Ref load_blocks(dsl::Builder& k, const BlockCastSpec& s, const BlockTile& tile,
                     const dsl::Ref& x, const TileOrigin& at);

/// Returns the largest magnitude of each scale block, f32 (blocks). Drops NaN. A thread folds its
/// own rows first; then lanes exchange columns by shuffles, and warps exchange rows through shared
/// memory.
dsl::Ref block_amax(dsl::Builder& k, const BlockTile& tile, const dsl::Ref& x_frag);

/// The dtype of the inverse scales of store_block_codes: bf16 for powers of two, else f32.
DType inverse_dtype(const BlockCastSpec& s);
/// Multiplies the tile by the inverse scale of each block and stores the codes to `out`.
void store_block_codes(dsl::Builder& k, const BlockCastSpec& s, const BlockTile& tile,
                       const dsl::Ref& x_frag, const dsl::Ref& inverse, const dsl::Ref& out,
                       const TileOrigin& at);

}  // namespace tessera::kernels
