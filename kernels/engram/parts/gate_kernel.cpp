// engram_gate_fwd: every residual stream plus the value row, weighted by the stream's gate.
//
// Shapes   hidden_states and out [tokens x streams, hidden], k [tokens, streams, hidden], v [tokens,
//          hidden], weight_fused [streams, hidden], dot, gate_score, rstd_x and rstd_k [tokens,
//          streams]
// Dtypes   rows bf16, weights and scores f32
// Method   one block per stream and run of tokens. It keeps the weights of its columns in registers,
//          loads x, k and v of a token at once, sums over the block, and adds. x, k and out move
//          once; v comes from L2 for all streams but one. The bound is bytes / copy bandwidth.
// Maths    each sum: fma over the thread's columns in ascending order, then over the warp by xor 16,
//          8, 4, 2, 1, then over warps in ascending order; the score as in engram_gate_fwd.h. A token of
//          an image keeps its row, and its saved values are 0.
// Tuned    H200: see pick_gate_tile; up to 8 tokens per block read the weights once.

#include "kernels/engram/parts/gate_kernel.h"

#include <cmath>
#include <optional>
#include <vector>

#include "dsl/builder.h"
#include "kernels/engram/parts/block_sums.h"
#include "kernels/engram/parts/gate_tile.h"

namespace tessera::kernels::engram {
namespace {

/// Launch bound: two blocks of more than 128 threads fit with all the registers of a token. Without
/// the bound ptxas saves registers and loads v after the sums, which then waits for memory twice.
int blocks_per_sm(int64_t threads) {
  return threads > 128 && threads <= 256 ? 2 : 0;
}

}  // namespace

ir::Kernel build_gate(const GateSpec& s) {
  using namespace dsl;
  const auto hidden = static_cast<float>(s.hidden);
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.hidden)));
  Builder k("engram_gate_fwd");
  const Columns columns(k, s.hidden, pick_gate_tile(s.hidden));
  const GateTile& tile = columns.tile();
  const int64_t align = s.vector * 2;
  // NOTE: rows of x and out count tokens and streams together. With a term for each in the address,
  // NVRTC 13.0 splits the 16-byte stores into four.
  auto tokens = k.dim("tokens"), rows = k.dim("rows");
  const DimOptions apart{.multiple_of = s.vector};
  auto k_token = k.stride("k_token_stride", apart), k_stream = k.stride("k_stream_stride", apart);
  auto v_token = k.stride("v_token_stride", apart);
  auto hidden_states = k.input("hidden_states", DType::bf16, {rows, s.hidden}, {.align = align});
  auto keys = k.input("k", DType::bf16, {tokens, s.streams, s.hidden},
                      {.strides = {k_token, k_stream, 1}, .align = align});
  auto values =
      k.input("v", DType::bf16, {tokens, s.hidden}, {.strides = {v_token, 1}, .align = align});
  auto weight_fused =
      k.input("weight_fused", DType::f32, {s.streams, s.hidden}, {.align = s.weight_vector * 4});
  std::optional<Ref> image;
  if (s.has_mask) image = k.input("image_token_mask", DType::boolean, {tokens}, {.align = 1});
  auto out = k.output("out", DType::bf16, {rows, s.hidden}, {.align = align});
  std::vector<Ref> saved;
  if (s.save) {
    for (const char* name : {"dot", "gate_score", "rstd_x", "rstd_k"}) {
      saved.push_back(k.output(name, DType::f32, {tokens, s.streams}, {.align = 4}));
    }
  }
  auto eps = k.scalar("eps", DType::f32), clamp = k.scalar("clamp_value", DType::f32);
  auto tokens_per_block = k.scalar("tokens_per_block", DType::i32);
  auto at = k.launch({(tokens + tokens_per_block - 1) / tokens_per_block * s.streams},
                     {.threads = static_cast<int>(tile.threads),
                      .min_blocks_per_sm = blocks_per_sm(tile.threads)});
  auto stream = k.let("stream", at.x % s.streams);
  auto first_token = k.let("first_token", at.x / s.streams * tokens_per_block);

  auto w = columns.load("w", DType::f32, s.weight_vector,
                        [&](const Value& col) { return weight_fused(stream, col); });
  k.serial(first_token, min(first_token + tokens_per_block, tokens), [&](Value token) {
    auto row = k.let("row", token * s.streams + stream);
    k.assume(token >= 0 && token < tokens && row >= 0 && row < rows);
    // load
    auto x = columns.load("x", DType::bf16, s.vector,
                          [&](const Value& col) { return hidden_states(row, col); });
    auto key = columns.load("key", DType::bf16, s.vector,
                            [&](const Value& col) { return keys(token, stream, col); });
    auto v = columns.load("v", DType::bf16, s.vector,
                          [&](const Value& col) { return values(token, col); });
    // sums over the row
    auto xx = k.var(DType::f32, 0.0f, "xx"), kk = k.var(DType::f32, 0.0f, "kk");
    auto xwk = k.var(DType::f32, 0.0f, "xwk");
    k.unrolled(tile.runs, [&](Value run) {
      k.unrolled(kRun, [&](Value i) {
        auto a = f32(x(run, i)), b = f32(key(run, i));
        xx = fma(a, a, xx);
        kk = fma(b, b, kk);
        xwk = fma(a * w(run, i), b, xwk);
      });
    });
    const std::vector<Value> sums = block_sums(k, tile.threads / 32, {xx, kk, xwk});
    // gate
    auto rstd_x = k.let("rstd_x_value", rsqrt(sums[0] / hidden + eps));
    auto rstd_k = k.let("rstd_k_value", rsqrt(sums[1] / hidden + eps));
    auto u = k.let("u", sums[2] * rstd_x * rstd_k * root);
    auto magnitude = select(abs(u) < clamp, clamp, abs(u));  // NaN stays
    auto z = copysign(sqrt(magnitude), u);
    auto gate = k.let("gate", 1.0f / (1.0f + exp(-z)));
    // add and store
    std::optional<Value> is_image;
    if (image) is_image = k.let("is_image", (*image)(token));
    columns.each(s.vector, [&](const Value& run, const Value& col, const Value& i) {
      Value gated = cast(DType::bf16, fma(gate, f32(v(run, i)), f32(x(run, i))));
      if (is_image) gated = select(*is_image, x(run, i), gated);
      out(row, col) = gated;
    });
    if (s.save) {
      k.if_(k.thread() == 0, [&] {
        const Value results[] = {sums[2], gate, rstd_x, rstd_k};
        for (size_t i = 0; i < saved.size(); ++i) {
          saved[i](token, stream) = is_image ? select(*is_image, 0.0f, results[i]) : results[i];
        }
      });
    }
  });
  return k.finish();
}

}  // namespace tessera::kernels::engram
