// Computes the mixes of a sub-layer from the projected residual, and the sub-layer's input.
//
// Shapes   products [stored, tokens * entries], squares [tokens, stored], residual [tokens, streams,
//          hidden], layer_input [tokens, hidden], scale [3], base [entries], post_mix [tokens,
//          streams], comb_mix [tokens, streams, streams]
// Dtypes   residual and layer_input bf16, the rest f32
// Method   the tiles of pre_apply_mix_fwd with half as many threads. Every block adds up the parts of
//          its tokens' weights while its vectors of the residual are in flight. The first block of a
//          row also computes the other mixes after its share of the streaming, each token on as many
//          lanes as its matrix has elements. With a norm a block has whole rows: the streams wait in
//          registers for their weights, and the layer input stays there for its norm (normed_input.h).
// Maths    projection.h, mix_sequences.h, sinkhorn.h: the sequences of norm_fn_fwd,
//          pre_split_mixes_fwd, sinkhorn_fwd and pre_apply_mix_fwd
// Tuned    H200; see pick_row_tile. On all of its threads pre_big_fuse takes 3 % longer for 512 tokens
//          of 7168 and 0.7 % for 8192 of 4096, 1.4 % less for 16.

#include "kernels/mhc/parts/mix_kernel.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "dsl/builder.h"
#include "kernels/mhc/parts/mix_sequences.h"
#include "kernels/mhc/parts/normed_input.h"
#include "kernels/mhc/parts/row_tile.h"
#include "kernels/mhc/parts/saved_mixes.h"
#include "kernels/mhc/parts/sinkhorn.h"

namespace tessera::kernels::mhc {
namespace {

/// Up to two vectors of every stream per thread, in whole warps.
RowTile tile_of(int64_t hidden) {
  RowTile tile = pick_row_tile(hidden);
  tile.threads = (tile.threads + 63) / 64 * 32;
  return tile;
}

}  // namespace

ir::Kernel build_mix(const MixSpec& s) {
  using namespace dsl;
  const int64_t n = s.streams, width = n * s.hidden, entries = n * (n + 2);
  const bool has_columns = width > 0;
  const RowTile tile = s.has_norm != 0 ? NormedInput::tile(s.hidden)
                       : has_columns   ? tile_of(s.hidden)
                                       : RowTile{1, 0, 1, 32};
  const MatrixLanes matrix{n};
  Builder k("pre_big_fuse_mix");
  auto tokens = k.dim("tokens");
  std::optional<Ref> products, squares, residual, layer_input;
  if (has_columns) {
    products =
        k.input("products", DType::f32, {s.sum.stored(), tokens * entries}, {.align = s.sum.align});
    squares = k.input("squares", DType::f32, {tokens, s.sum.stored()}, {.align = 4});
    residual = k.input("residual", DType::bf16, {tokens, n, s.hidden}, {.align = s.align});
    if (s.save_layer_input != 0) {
      layer_input = k.output("layer_input", DType::bf16, {tokens, s.hidden}, {.align = s.align});
    }
  }
  auto scale = k.input("scale", DType::f32, {3}, {.align = 4});
  auto base = k.input("base", DType::f32, {entries}, {.align = 4});
  auto post_mix = k.output("post_mix", DType::f32, {tokens, n}, {.align = 4});
  auto comb_mix = k.output("comb_mix", DType::f32, {tokens, n, n}, {.align = 4});
  std::optional<SavedMixes> saved;
  if (s.save != 0) saved.emplace(k, tokens, n);
  auto norm_eps = k.scalar("norm_eps", DType::f32);
  auto pre_eps = k.scalar("pre_eps", DType::f32);
  auto sinkhorn_eps = k.scalar("sinkhorn_eps", DType::f32);
  auto post_mult = k.scalar("post_mult_value", DType::f32);
  auto repeat = k.scalar("sinkhorn_repeat", DType::i32);
  std::optional<NormedInput> normed;
  if (s.has_norm != 0) normed.emplace(k, s, tokens);
  auto row_tiles = ceil_div(normed ? normed->rows() : tokens, tile.rows);
  auto at = k.launch({row_tiles * tile.chunks}, {.threads = tile.threads});
  // In reverse order: L2 may still hold the end of the residual after the projection.
  auto first_token = k.let("first_token", (row_tiles - 1 - at.x / tile.chunks) * tile.rows);
  auto chunk = k.let("chunk", at.x % tile.chunks);
  auto first_col = k.let("first_col", chunk * tile.cols);

  // Reads inputs older than the projection before the wait. Without columns there is no projection,
  // and the previous kernel may be any kernel.
  if (!has_columns) k.wait_for_previous_kernel();
  // The residual is read for the last time: evict_first, so that L2 keeps the lines not read yet.
  std::vector<Ref> streams;
  if (normed) normed->load(residual->cached(CacheHint::evict_first), first_token);
  for (int64_t i = 0; has_columns && !normed && i < n; ++i) {
    streams.push_back(k.fragment(DType::bf16, {tile.rows, tile.cols}, "stream"));
    k.parallel({tile.rows, tile.cols}, [&](Value row, Value col) {
      streams.back()(row, col) =
          residual->cached(CacheHint::evict_first)(first_token + row, i, first_col + col);
    });
  }
  auto scale_of = k.shared(DType::f32, {entries}, "scale_of");
  auto base_of = k.shared(DType::f32, {entries}, "base_of");
  k.parallel({entries}, [&](Value j) {
    scale_of(j) = scale(min(j / n, 2));
    base_of(j) = base(j);
  });
  std::optional<SummedParts> sums;
  if (has_columns) {
    k.wait_for_previous_kernel();
    sums.emplace(k, s.sum, *products, *squares, first_token, tile.rows, FewProducts{n, chunk == 0});
  }
  // The columns of each token that this block needs: the weights of the streams, then the inputs of
  // the mix of the streams. A block of one token that is not the first of its row needs only the
  // weights.
  auto needed =
      tile.rows > 1 ? i32(tile.rows * entries) : Value(select(chunk == 0, i32(entries), i32(n)));
  auto mixes = k.shared(DType::f32, {tile.rows, entries}, "mixes");
  for (int64_t first = 0; first < tile.rows * entries; first += tile.threads) {
    auto at_entry = k.let("entry", first + k.thread());
    k.if_(at_entry < needed, [&] {
      auto row = k.let("row", at_entry / entries), j = k.let("j", at_entry % entries);
      Value product = Arg(0.0f).value(), square = product, mix = product;
      if (sums) {
        product = sums->product(row, j);
        square = sums->square(row);
        mix = product * norm_factor(square, width, norm_eps);
      }
      auto z = k.let("z", mix_logit(mix, scale_of(j), base_of(j)));
      mixes(row, j) = select(j < n, pre_mix(z, pre_eps), z);
      k.if_(chunk == 0 && j >= n && j < 2 * n,
            [&] { post_mix(first_token + row, j - n) = mhc::post_mix(z, post_mult); });
      if (!saved) return;
      k.if_(chunk == 0, [&] {
        auto token = k.let("token", first_token + row);
        saved->store(token, j, {product, square, mix, z, mixes(row, j)});
      });
    });
  }
  if (normed) {
    normed->store(mixes, layer_input);
  } else if (has_columns) {
    k.parallel({tile.rows, tile.cols}, [&](Value row, Value col) {
      (*layer_input)(first_token + row, first_col + col) =
          cast(DType::bf16, apply_pre_mix(mixes, streams, row, col));
    });
  }
  const int64_t together = tile.threads / matrix.lanes();  // tokens
  for (int64_t first = 0; first < tile.rows; first += together) {
    const int64_t rows = std::min(together, tile.rows - first);
    k.if_(chunk == 0 && k.warp() * 32 < rows * matrix.lanes(), [&] {
      // Lanes after the last matrix repeat it: all lanes of a warp must take part in the shuffles.
      auto mine = k.let("mine", k.thread() / matrix.lanes());
      auto row = k.let("row", first + min(mine, rows - 1));
      auto i = k.let("i", matrix.row(k.thread())), o = k.let("o", matrix.col(k.thread()));
      auto logit = k.let("logit", mixes(row, 2 * n + min(i * n + o, n * n - 1)));
      auto comb = sinkhorn(k, matrix, k.thread(), logit, repeat, sinkhorn_eps);
      k.if_(mine < rows, [&] { comb_mix(first_token + row, i, o) = comb; });
    });
  }
  return k.finish();
}

}  // namespace tessera::kernels::mhc
