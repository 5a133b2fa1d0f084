#pragma once
// What the kernels on rows of tokens begin with: the matrix that they read, and one tile of it.

#include "kernels/quant/token_cast.h"
#include "kernels/quant/token_grid.h"

namespace tessera::kernels {

/// The input `x` [tokens, hidden], rows any stride apart.
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

/// The tile of this block in registers, (rows, cols); 0 outside the matrix.
inline dsl::Ref load_tile(dsl::Builder& k, const TokenRows& rows, const TileOrigin& at,
                          const TokenTile& tile) {
  auto x_frag = k.fragment(rows.x.dtype(), {tile.rows, tile.cols}, "x_frag");
  k.copy(rows.x.tile({at.row, at.col}, {tile.rows, tile.cols}), x_frag);
  return x_frag;
}

}  // namespace tessera::kernels
