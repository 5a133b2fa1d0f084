#pragma once
// The input matrix of kernels on rows of tokens, and the load of one tile.

#include "kernels/quant/parts/token_cast.h"
#include "kernels/quant/parts/token_grid.h"

namespace tessera::kernels {

/// The input `x` [tokens, hidden], with any row stride.
struct TokenRows {
  dsl::Value tokens;
  dsl::Ref x;
};

inline TokenRows declare_rows(dsl::Builder& k, const TokenCastSpec& s) {
  auto tokens = k.dim("tokens");
  auto row_stride = k.stride("x_row_stride", {.multiple_of = s.stride_multiple});
  auto x = k.input("x", s.in, {tokens, s.hidden}, {.strides = {row_stride, 1}, .align = s.align});
  return {tokens, x};
}

/// Loads the tile of this block into registers, (rows, cols); 0 outside the matrix.
inline dsl::Ref load_tile(dsl::Builder& k, const TokenRows& rows, const TileOrigin& at,
                          const TokenTile& tile) {
  auto x_frag = k.fragment(rows.x.dtype(), {tile.rows, tile.cols}, "x_frag");
  k.copy(rows.x.tile({at.row, at.col}, {tile.rows, tile.cols}), x_frag);
  return x_frag;
}

}  // namespace tessera::kernels
