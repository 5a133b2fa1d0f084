#pragma once
// What the ops that cast columns share: the tile of a block in registers, and the way from its
// values to codes with one scale per column and run of tokens.

#include "kernels/quant/scale_factor.h"
#include "kernels/quant/token_grid.h"

namespace tessera::kernels {

/// A tile of 128 tokens. A thread holds `own_tokens` x `own_cols` values: neighbours in a warp read
/// the columns of one token, then come the next tokens.
struct ChannelTile {
  static constexpr int64_t kTokens = 128;
  int64_t cols, own_tokens, own_cols;

  int64_t lanes() const { return cols / own_cols; }  // threads of one token
  int64_t token_threads() const { return kTokens / own_tokens; }
  int threads() const { return static_cast<int>(lanes() * token_threads()); }

  layout::Layout values() const;  // (tokens, cols)
  layout::Layout tokens() const;  // (tokens): each in all threads that hold its columns
  layout::Layout parts() const;   // (token threads, cols): one value per column of a thread
};

/// 16 bytes of bf16 along a token, and 16 tokens for the stores of a transposed cast.
inline constexpr ChannelTile kTransposedTile = {64, 16, 8};
/// Whole lines of codes along a token.
inline constexpr ChannelTile kBf16Tile = {128, 16, 8};

/// The largest magnitude of each column in each thread, (token threads, cols), of the values `x`,
/// (tokens, cols). NaN is dropped.
dsl::Ref own_amax(dsl::Builder& k, const ChannelTile& tile, const dsl::Ref& x);

/// Stores one scale per column and run of `run` tokens to `out_sf`, (runs, columns) of the matrix.
/// Returns what values are multiplied by, (runs, cols), in the threads that hold the values.
/// `factor` is f32, or bf16 for powers of two.
dsl::Ref column_factors(dsl::Builder& k, const ChannelTile& tile, int64_t run, bool round,
                        const TileOrigin& at, const dsl::Ref& amax, const dsl::Ref& out_sf,
                        DType factor);

/// Scales, then casts and stores the values `x` of a tile: to out [hidden, tokens] if `transposed`,
/// else to out [tokens, hidden].
void cast_columns(dsl::Builder& k, const ChannelTile& tile, int64_t run, bool round,
                  const TileOrigin& at, const dsl::Ref& x, const dsl::Ref& out_sf,
                  const dsl::Ref& out, bool transposed);

}  // namespace tessera::kernels
