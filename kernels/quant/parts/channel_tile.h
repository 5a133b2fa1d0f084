#pragma once
// The parts that column casts share: the register tile of a block, and the steps from values to
// codes with one scale per column and run of tokens.

#include "kernels/quant/parts/scale_factor.h"
#include "kernels/quant/parts/token_grid.h"

namespace tessera::kernels {

/// A tile of 128 tokens. A thread holds `own_tokens` x `own_cols` values. Neighbouring lanes hold
/// the columns of one token, then the next tokens.
struct ChannelTile {
  static constexpr int64_t kTokens = 128;
  int64_t cols, own_tokens, own_cols;

  int64_t lanes() const { return cols / own_cols; }  // threads of one token
  int64_t token_threads() const { return kTokens / own_tokens; }
  int threads() const { return static_cast<int>(lanes() * token_threads()); }

  layout::Layout values() const;  // (tokens, cols)
  layout::Layout tokens() const;  // (tokens): each value in all threads of its token
  layout::Layout parts() const;   // (token threads, cols): one value per column and thread
};

/// 16 bytes of bf16 along a token, and 16 tokens, for the stores of a transposed cast.
inline constexpr ChannelTile kTransposedTile = {64, 16, 8};
/// Whole 128-byte lines of codes along a token.
inline constexpr ChannelTile kBf16Tile = {128, 16, 8};

/// Returns the largest magnitude of each column within each thread, (token threads, cols), of the
/// values `x`, (tokens, cols). Drops NaN.
dsl::Ref own_amax(dsl::Builder& k, const ChannelTile& tile, const dsl::Ref& x);

/// Stores one scale per column and run of `run` tokens to `out_sf`, (runs, columns) of the matrix.
/// Returns the factors of the values, (runs, cols), in the threads that hold the values. `factor`
/// is f32, or bf16 for powers of two.
dsl::Ref column_factors(dsl::Builder& k, const ChannelTile& tile, int64_t run, bool round,
                        const TileOrigin& at, const dsl::Ref& amax, const dsl::Ref& out_sf,
                        DType factor);

/// Scales and casts the values `x` of a tile and stores them to out [hidden, tokens] if
/// `transposed`, else to out [tokens, hidden].
void cast_columns(dsl::Builder& k, const ChannelTile& tile, int64_t run, bool round,
                  const TileOrigin& at, const dsl::Ref& x, const dsl::Ref& out_sf,
                  const dsl::Ref& out, bool transposed);

}  // namespace tessera::kernels
