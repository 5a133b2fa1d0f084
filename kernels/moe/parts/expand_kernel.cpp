#include "kernels/moe/parts/expand_kernel.h"

#include <algorithm>
#include <numeric>

#include "kernels/moe/parts/row_scatter.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels::moe {
namespace {

constexpr int kWarps = 4;  // parts of rows per block

// Up to this many tokens, each warp has about one SM to itself, so no two warps of a block store
// the same token.
constexpr int64_t kFewTokens = 512;

RowWords sf_row(const ExpandSpec& s) {
  return {DType::u32, s.scales, 1};
}

std::vector<RowStream> streams_of(const ExpandSpec& s) {
  std::vector<RowStream> streams = {{row_words(s.row_bytes, s.align), {}, {}}};
  if (s.scales > 0) streams.push_back({sf_row(s), {}, {}});
  return streams;
}

}  // namespace

int64_t part_stride(const ExpandSpec& s, int64_t tokens, int64_t positions) {
  const int64_t parts = std::max(tokens, positions) * row_parts(streams_of(s));
  return tokens <= kFewTokens ? (parts + kWarps - 1) / kWarps : 1;
}

ir::Kernel build_expand(const ExpandSpec& s) {
  using namespace dsl;
  std::vector<RowStream> streams = streams_of(s);
  const RowWords row = streams[0].row;
  const bool has_scales = s.scales > 0;
  const bool by_column = has_scales && s.sf_layout != SfLayout::row_major;
  Builder k(has_scales ? "expand_to_fused_with_sf" : "expand_to_fused");
  auto positions = k.dim("positions");
  auto pos_to_expert = k.input("pos_to_expert", DType::i32, {positions}, {.align = 4});
  auto out = k.output("out", row.dtype, {positions, row.words}, {.align = s.align});
  streams[0].to = [&](const Value& p, const Value& word) { return out(p, word); };
  auto written = by_column ? k.dim("padded_positions", {.multiple_of = 4}) : positions;
  if (has_scales) {
    auto out_sf = by_column ? k.output("out_sf", DType::u32, {s.scales, written}, {.align = 4})
                            : k.output("out_sf", DType::u32, {written, s.scales}, {.align = 4});
    streams[1].to = [=](const Value& p, const Value& word) {
      return by_column ? out_sf(word, p) : out_sf(p, word);
    };
  }

  const int64_t parts = row_parts(streams);
  auto clear = [&](const Value& position, const RowPart& part) {
    k.if_(position < positions, [&] {
      k.if_(pos_to_expert(position) < 0, [&] {
        for (const RowStream& stream : streams) clear_row(k, stream, part, position);
      });
    });
    if (!by_column) return;
    k.if_(position >= positions && position < written,
          [&] { clear_row(k, streams[1], part, position); });
  };
  // Row and part of the warp with grid-wide index `warp`.
  auto row_of = [&](const Value& warp) { return parts == 1 ? warp : warp / parts; };
  auto part_of = [&](const Value& warp) {
    return RowPart{parts == 1 ? i32(0) : k.let("part", warp % parts), parts};
  };
  if (s.num_topk == 0) {
    auto at = k.launch({ceil_div(written * parts, kWarps)}, {.threads = kWarps * 32});
    auto warp = k.let("warp", at.x * kWarps + k.warp());
    clear(k.let("position", row_of(warp)), part_of(warp));
    return k.finish();
  }

  auto tokens = k.dim("tokens");
  TensorOptions of_x = {.align = s.align};
  if (s.has_gaps) {
    of_x.strides = {k.stride("x_stride", {.multiple_of = s.align / bytes(row.dtype)}), 1};
  }
  auto x = k.input("x", row.dtype, {tokens, row.words}, of_x);
  streams[0].from = [&](const Value& t, const Value& word) { return x(t, word); };
  if (has_scales) {
    auto sf_rows = k.stride("x_sf_row_stride"), sf_cols = k.stride("x_sf_col_stride");
    auto x_sf = k.input("x_sf", DType::u32, {tokens, s.scales},
                        {.strides = {sf_rows, sf_cols}, .align = 4});
    streams[1].from = [=](const Value& t, const Value& word) { return x_sf(t, word); };
  }
  auto token_topk_to_pos =
      k.input("token_topk_to_pos", DType::i32, {tokens, s.num_topk}, {.align = 4});
  auto parts_apart = k.scalar("parts_apart", DType::i32);
  auto at = k.launch({ceil_div(max(tokens, written) * parts, kWarps)}, {.threads = kWarps * 32});
  // parts_apart == 1: warps of a block take neighbouring parts. Else warp w of block b takes part b + w * parts_apart, so
  // that few tokens reach all multiprocessors.
  auto warp = k.let("warp", at.x * select(parts_apart == 1, kWarps, 1) + k.warp() * parts_apart);
  k.assume(warp >= 0);
  auto token = k.let("token", row_of(warp));
  const RowPart part = part_of(warp);
  k.if_(token < tokens,
        [&] { scatter_rows(k, streams, part, token_topk_to_pos, token, s.num_topk, positions); });
  clear(token, part);
  return k.finish();
}

void add_expand(const Call& c, Launches& go) {
  const TensorView& x = c.given("x");
  ExpandSpec s;
  s.row_bytes = static_cast<int32_t>(c.i32("H") * int64_t{bytes(x.dtype)});
  s.scales = 0;
  s.num_topk = c["T"] == 0 ? 0 : c.i32("K");
  s.has_gaps = c["T"] > 1 && x.strides[0] != c["H"];
  s.align = c.align({"x", "out"});
  if (s.has_gaps) {
    s.align = static_cast<int32_t>(std::gcd(int64_t{s.align}, x.strides[0] * bytes(x.dtype)));
  }
  s.sf_layout = SfLayout::row_major;
  const DType word = row_words(s.row_bytes, s.align).dtype;
  const auto words = [&](const char* name) {
    return Args::Tensor{name, retyped(c.given(name), word)};
  };
  go.add(build_expand, s,
         {.tensors = {words("x"), words("out")},
          .scalars = {{"parts_apart", part_stride(s, c["T"], c["P"])}}});
}

}  // namespace tessera::kernels::moe
