#include "kernels/quant/parts/block_cast.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kLoads = 8;  // per thread

int64_t round_up(int64_t a, int64_t b) {
  return num_blocks(a, b) * b;
}

/// (rows, cols): neighbouring threads hold neighbouring vectors of a row; a thread's rows are
/// `row_threads` apart.
layout::Layout register_tile(const BlockTile& t) {
  return layout::Layout({t.rows, t.cols}, {{0, 1, t.row_threads, t.col_threads, 0},
                                           {0, t.row_threads, kLoads, 0, t.vector},
                                           {1, 1, t.vector, 0, 1},
                                           {1, t.vector, t.col_threads, 1, 0}});
}

}  // namespace

BlockCastSpec block_cast_spec(const Call& c) {
  BlockCastSpec s;
  s.in = c.dtype("x");
  s.format = c.dtype("format");
  s.sf_layout = c.find("sf_layout") ? sf_layout_of(c.params(), "sf_layout") : SfLayout::row_major;
  s.round_sf = c.find("round_sf") && c.flag("round_sf");
  s.align = c.align({"x"});
  s.hidden = c.i32("H");
  s.block_rows = c.i32("br");
  s.block_cols = c.i32("bc");
  return s;
}

BlockTile pick_block_tile(const BlockCastSpec& s) {
  int64_t cols = s.block_rows == 32 ? 256 : 128;
  while (cols > s.block_cols && round_up(s.hidden, cols) * 8 > s.hidden * int64_t{9}) cols /= 2;
  const int64_t vector = s.in == DType::f32 ? 4 : 8;
  return {s.block_rows, cols, cols / s.block_cols, s.block_rows / kLoads, cols / vector, vector};
}

BlockMatrix declare_block_matrix(dsl::Builder& k, const BlockCastSpec& s) {
  auto tokens = k.dim("tokens");
  auto x = k.input("x", s.in, {tokens, s.hidden}, {.align = s.align});
  return {tokens, ceil_div(tokens, s.block_rows), x};
}

TileOrigin launch_blocks(dsl::Builder& k, const BlockCastSpec& s, const BlockTile& tile,
                         const dsl::Value& block_rows, SfLayout layout) {
  const int64_t covered = round_up(s.hidden, ScaleWriter::cols_together(layout) * s.block_cols);
  // Launch bound: up to 64 registers per thread, so that 128 KB of loads are in flight per SM.
  constexpr int kThreads = 1024;
  return launch_tiles(k, block_rows, 1, covered, tile.cols, tile.threads(),
                      kThreads / tile.threads());
}

dsl::Ref load_blocks(dsl::Builder& k, const BlockCastSpec& s, const BlockTile& tile,
                     const dsl::Ref& x, const TileOrigin& at) {
  auto x_frag = k.fragment(s.in, register_tile(tile), "x_frag");  // (rows, cols)
  k.copy(x.tile({at.row * tile.rows, at.col}, {tile.rows, tile.cols}), x_frag);
  return x_frag;
}

dsl::Ref block_amax(dsl::Builder& k, const BlockTile& tile, const dsl::Ref& x_frag) {
  using namespace dsl;
  const int64_t block_cols = tile.cols / tile.blocks;
  auto of_column =  // (row threads, blocks, columns of a block)
      k.fragment(x_frag.dtype(), {tile.row_threads, tile.blocks, block_cols}, "of_column");
  k.reduce_absmax(x_frag.reshape({kLoads, tile.row_threads, tile.blocks, block_cols}), of_column,
                  Axis(0));
  auto of_rows = k.fragment(DType::f32, {tile.row_threads, tile.blocks}, "of_rows");
  k.reduce_max(of_column, of_rows, Axis(2));
  auto amax = k.fragment(DType::f32, {tile.blocks}, "amax");  // (blocks)
  k.reduce_max(of_rows, amax, Axis(0));
  return amax;
}

DType inverse_dtype(const BlockCastSpec& s) {
  return s.in == DType::bf16 && s.round_sf ? DType::bf16 : DType::f32;
}

void store_block_codes(dsl::Builder& k, const BlockCastSpec& s, const BlockTile& tile,
                       const dsl::Ref& x_frag, const dsl::Ref& inverse, const dsl::Ref& out,
                       const TileOrigin& at) {
  using namespace dsl;
  const int64_t block_cols = tile.cols / tile.blocks;
  auto codes = k.fragment(s.format, {tile.rows, tile.cols}, "codes");  // (rows, cols)
  if (inverse.dtype() == DType::f32) {
    k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
      codes(r, c) = cast(s.format, f32(x_frag(r, c)) * inverse(c / block_cols));
    });
  } else {
    // A product of bf16 and a power of two is exact, except below 2^-126, where the code is 0.
    k.parallel({tile.rows, tile.cols},
               [&](Value r, Value c) { x_frag(r, c) = x_frag(r, c) * inverse(c / block_cols); });
    if (s.format == DType::e2m1) {
      // A product is at most 6. As f16 it loses bits only below 2^-14, where the code is 0 as well.
      // The f16 conversion takes two elements at a time.
      auto scaled = k.fragment(DType::f16, {tile.rows, tile.cols}, "scaled");  // (rows, cols)
      k.parallel({tile.rows, tile.cols},
                 [&](Value r, Value c) { scaled(r, c) = cast(DType::f16, f32(x_frag(r, c))); });
      k.parallel({tile.rows, tile.cols},
                 [&](Value r, Value c) { codes(r, c) = cast(s.format, scaled(r, c)); });
    } else {
      k.parallel({tile.rows, tile.cols},
                 [&](Value r, Value c) { codes(r, c) = cast(s.format, f32(x_frag(r, c))); });
    }
  }
  k.copy(codes, out.tile({at.row * tile.rows, at.col}, {tile.rows, tile.cols}));
}

}  // namespace tessera::kernels
