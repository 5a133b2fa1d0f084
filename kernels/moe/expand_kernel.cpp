#include "kernels/moe/expand_kernel.h"

#include <algorithm>

#include "kernels/moe/row_scatter.h"

namespace tessera::kernels::moe {
namespace {

constexpr int kWarps = 4;  // rows per block

// Up to so many tokens no two warps of a block store one: each has an SM for itself, more or less.
constexpr int64_t kFewTokens = 512;

}  // namespace

int64_t rows_apart(int64_t tokens, int64_t positions) {
  return tokens <= kFewTokens ? (std::max(tokens, positions) + kWarps - 1) / kWarps : 1;
}

ir::Kernel build_expand(const ExpandSpec& s) {
  using namespace dsl;
  const RowWords row = row_words(s.row_bytes, s.align);
  const RowWords sf_row{DType::u32, s.scales, 1};
  const bool by_column = s.sf_layout != SfLayout::row_major;
  Builder k("expand_to_fused_with_sf");
  auto positions = k.dim("positions");
  auto pos_to_expert = k.input("pos_to_expert", DType::i32, {positions}, {.align = 4});
  auto out = k.output("out", row.dtype, {positions, row.words}, {.align = s.align});
  auto written = by_column ? k.dim("padded_positions", {.multiple_of = 4}) : positions;
  auto out_sf = by_column ? k.output("out_sf", DType::u32, {s.scales, written}, {.align = 4})
                          : k.output("out_sf", DType::u32, {written, s.scales}, {.align = 4});
  RowStream data{row, {}, [&](const Value& p, const Value& word) { return out(p, word); }};
  RowStream scales{sf_row, {}, [&](const Value& p, const Value& word) {
                     return by_column ? out_sf(word, p) : out_sf(p, word);
                   }};

  auto clear = [&](const Value& position) {
    k.if_(position < positions, [&] {
      k.if_(pos_to_expert(position) < 0, [&] {
        clear_row(k, data, position);
        clear_row(k, scales, position);
      });
    });
    if (!by_column) return;
    k.if_(position >= positions && position < written, [&] { clear_row(k, scales, position); });
  };
  if (s.num_topk == 0) {
    auto at = k.launch({ceil_div(written, kWarps)}, {.threads = kWarps * 32});
    clear(k.let("position", at.x * kWarps + k.warp()));
    return k.finish();
  }

  auto tokens = k.dim("tokens");
  auto sf_rows = k.stride("x_sf_row_stride"), sf_cols = k.stride("x_sf_col_stride");
  auto x = k.input("x", row.dtype, {tokens, row.words}, {.align = s.align});
  auto x_sf =
      k.input("x_sf", DType::u32, {tokens, s.scales}, {.strides = {sf_rows, sf_cols}, .align = 4});
  auto token_topk_to_pos =
      k.input("token_topk_to_pos", DType::i32, {tokens, s.num_topk}, {.align = 4});
  auto rows_apart = k.scalar("rows_apart", DType::i32);
  auto at = k.launch({ceil_div(max(tokens, written), kWarps)}, {.threads = kWarps * 32});
  auto token = k.let("token", at.x * select(rows_apart == 1, kWarps, 1) + k.warp() * rows_apart);
  k.assume(token >= 0);
  data.from = [&](const Value& t, const Value& word) { return x(t, word); };
  scales.from = [&](const Value& t, const Value& word) { return x_sf(t, word); };
  k.if_(token < tokens, [&] {
    scatter_rows(k, {data, scales}, token_topk_to_pos, token, s.num_topk, positions);
  });
  clear(token);
  return k.finish();
}

}  // namespace tessera::kernels::moe
