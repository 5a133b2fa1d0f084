// per_channel_cast_and_transpose: columns to e4m3 with one scale per run of tokens, transposed.
//
// Method   one pass, in registers: a thread holds 16 tokens x 8 columns, so it reads 16-byte
//          vectors along a row and writes 16-byte vectors along a column; eight neighbours read
//          128 bytes. The threads of a run share their scales out, and exchange maxima and factors
//          through shared memory. The bound is bytes / copy bandwidth.
// Maths    scale = max(amax, floor) / max, code = cast(x * (max / max(amax, floor))): see
//          scale_factor.h
// Tuned    H200: tiles of 16 x 4 and 8 x 8 per thread take 9 % longer, neighbours along the tokens
//          5 %: whole lines are worth more to reads than to writes

#include "dsl/builder.h"
#include "kernels/all_ops.h"
#include "kernels/quant/scale_factor.h"
#include "kernels/quant/token_grid.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t hidden, run;
  int32_t align;  // bytes of x, at most 16
  int32_t round_sf;
};

constexpr int64_t kTokens = 128, kCols = 64;  // of a block: whole lines of 128 bytes on both sides
constexpr int kThreads = 64;
constexpr int64_t kTokensOfThread = 16;

/// (tokens, cols): 16 tokens x 8 columns per thread. Eight neighbours read 128 bytes of a row.
layout::Layout register_tile() {
  return layout::Layout({kTokens, kCols},
                        {{0, 1, 16, 0, 8}, {0, 16, 8, 8, 0}, {1, 1, 8, 0, 1}, {1, 8, 8, 1, 0}});
}

/// (runs, cols): the threads of a run share their eight columns out, so that no scale is computed
/// twice.
layout::Layout scale_tile(int64_t runs) {
  const int64_t own = runs, sharing = 8 / runs;  // columns of a thread, threads of a run
  return layout::Layout(
      {runs, kCols},
      {{0, 1, runs, sharing * 8, 0}, {1, 1, own, 0, 1}, {1, own, sharing, 8, 0}, {1, 8, 8, 1, 0}});
}

/// (runs, threads of a run, cols): what the thread of a scale needs of each of them.
layout::Layout part_tile(int64_t runs) {
  const int64_t own = runs, sharing = 8 / runs;
  return layout::Layout({runs, sharing, kCols}, {{0, 1, runs, sharing * 8, 0},
                                                 {1, 1, sharing, 0, own},
                                                 {2, 1, own, 0, 1},
                                                 {2, own, sharing, 8, 0},
                                                 {2, 8, 8, 1, 0}});
}

/// (runs, cols): the eight columns of a thread, in every thread of their run.
layout::Layout factor_tile(int64_t runs) {
  return layout::Layout({runs, kCols},
                        {{0, 1, runs, 64 / runs, 0}, {1, 1, 8, 0, 1}, {1, 8, 8, 1, 0}},
                        {{8 / runs, 8}});
}

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t runs = kTokens / s.run;

  Builder k("per_channel_cast_and_transpose");
  auto tokens = k.dim("tokens", {.multiple_of = kTokens});
  auto x = k.input("x", DType::bf16, {tokens, s.hidden}, {.align = s.align});
  auto out = k.output("out", DType::e4m3, {s.hidden, tokens});
  auto out_sf = k.output("out_sf", DType::f32, {tokens / s.run, s.hidden});
  // Up to 128 registers: NVRTC takes 4 % longer to find 96.
  const TileOrigin at = launch_tiles(k, tokens, kTokens, s.hidden, kCols, kThreads, 8);
  k.assume(at.row + (kTokens - 1) < tokens);  // a multiple of kTokens, so
  k.assume(at.row / s.run + (runs - 1) < tokens / s.run);

  // load
  auto x_frag = k.fragment(DType::bf16, register_tile(), "x_frag");  // (tokens, cols)
  k.copy(x.tile({at.row, at.col}, {kTokens, kCols}), x_frag);

  // amax per run of tokens: of each thread, then of the threads of a run
  constexpr int64_t kParts = kTokens / kTokensOfThread;
  auto part = k.fragment(DType::bf16, {kParts, kCols}, "part");  // (threads, cols)
  k.reduce_absmax(x_frag.reshape({kParts, kTokensOfThread, kCols}), part, Axis(1));
  auto parts = k.fragment(DType::bf16, part_tile(runs), "parts");  // (runs, threads of a run, cols)
  k.parallel({runs, kParts / runs, kCols},
             [&](Value r, Value i, Value c) { parts(r, i, c) = part(r * (kParts / runs) + i, c); });
  auto amax = k.fragment(DType::f32, scale_tile(runs), "amax");  // (runs, cols)
  k.reduce_max(parts, amax, Axis(1));

  // scales
  const bool round = s.round_sf != 0;
  const DType factor = round ? DType::bf16 : DType::f32;
  auto own_inverse = k.fragment(factor, scale_tile(runs), "own_inverse");  // (runs, cols)
  k.parallel({runs, kCols}, [&](Value r, Value c) {
    auto sf = scale_factor(k, kE4m3, amax(r, c), round);
    own_inverse(r, c) = cast(factor, sf.inverse);
    out_sf(at.row / s.run + r, at.col + c) = sf.scale;
  });
  auto inverse = k.fragment(factor, factor_tile(runs), "inverse");  // (runs, cols)
  k.parallel({runs, kCols}, [&](Value r, Value c) { inverse(r, c) = own_inverse(r, c); });

  // scale, in pairs by powers of two: exact in bf16, but for products that are zeros in e4m3
  if (round) {
    k.parallel({kTokens, kCols},
               [&](Value t, Value c) { x_frag(t, c) = x_frag(t, c) * inverse(t / s.run, c); });
  }

  // cast and store
  k.parallel({kCols, kTokens}, [&](Value c, Value t) {
    out(at.col + c, at.row + t) =
        cast(DType::e4m3, round ? f32(x_frag(t, c)) : f32(x_frag(t, c)) * inverse(t / s.run, c));
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build,
         Spec{c.i32("H"), c.i32("num_per_tokens"), c.align({"x"}), c.flag("round_sf") ? 1 : 0});
}

}  // namespace

const Op per_channel_cast_and_transpose_op{
    .name = "per_channel_cast_and_transpose",
    .family = "quant",
    .purpose = "columns to 8-bit floats with one scale per run of tokens, transposed",
    .signature = R"(
      x          bf16 [T, H]
      -> out     e4m3 [H, T] align 16
      -> out_sf  SF(num_per_tokens,1) of x
      param      num_per_tokens {32, 128}
      param      round_sf bool = false
      param      format {e4m3} = e4m3
      need       T % 128 = 0
      need       H % 64 = 0
      limit      H <= 2147483647
    )",
    .launches = launches,
    .examples = R"(
      T=256 H=192 num_per_tokens=128 round_sf=true; T=128 H=576 num_per_tokens=32)",
    .bench = R"(
      T=8064 H=7168 num_per_tokens=128 round_sf=true; T=8064 H=7168 num_per_tokens=32 round_sf=true
      T=8064 H=7168 num_per_tokens=128; T=128 H=7168 num_per_tokens=128 round_sf=true)"};

}  // namespace tessera::kernels
