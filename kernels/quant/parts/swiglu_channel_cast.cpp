// swiglu_channel_cast: gated activation, then columns to e4m3 with one scale per run of tokens.
//
// Shapes   x [tokens, 2, hidden] (gate, up), out [tokens, hidden] or [hidden, tokens],
//          out_sf [tokens / run, hidden]
// Dtypes   x bf16, out e4m3, out_sf f32
// Method   one pass, in registers: both halves of a tile are loaded before the first activation,
//          then values are cast as in per_channel_cast_and_transpose. x is read once, so the bound
//          is bytes / copy bandwidth.
// Maths    v = gate / (1 + exp(-gate)) * up, every step rounded to f32, then to bf16; scale and
//          code: see scale_factor.h
// Tuned    H200, 8064 x 7168 (peer): runs of 32 81.9 us with rounded scales (80.9), 82.5 without (81.0);
//          runs of 128 83.6 (84.7) and 84.4 (84.9). By the hint of the loads, none, no_allocate,
//          evict_first: runs of 32 81.9, 81.9, 81.9 and 83.2, 83.5, 82.5; runs of 128 85.7, 83.6, 84.6
//          and 84.4, 87.0, 86.7. evict_first on the stores of out: 1.3 to 1.9 us more. H100: 108 to 114,
//          transposed 111 to 116. Without the launch bound ptxas loads three vectors at a time: 118 and
//          122. H100: for 4, 6 and 7 blocks 112, 115 and 116; tiles of 128 columns 120 and 145, 16
//          tokens per thread 115 and 119, 4 tokens 111 and 126.

#include "kernels/quant/parts/swiglu_channel_cast.h"

#include <vector>

#include "kernels/quant/parts/channel_tile.h"
#include "kernels/quant/parts/gated.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t hidden, run;
  uint8_t align;  // bytes of x, at most 16
  bool round_sf, has_clamp, transposed;
};

/// The hint of the loads of x, as measured on an H200.
dsl::CacheHint hint_of(const Spec& s) {
  using dsl::CacheHint;
  if (s.transposed || s.run != ChannelTile::kTokens) return CacheHint::evict_first;
  return s.round_sf ? CacheHint::no_allocate : CacheHint::none;
}

ir::Kernel build_swiglu_channel_cast(const std::string& op, const Spec& s) {
  using namespace dsl;
  constexpr int64_t kTokens = ChannelTile::kTokens;
  constexpr ChannelTile tile = {64, 8, 8};
  constexpr int kBlocksPerSm = 5;

  Builder k(op);
  auto tokens = k.dim("tokens", {.multiple_of = kTokens});
  auto x = k.input("x", DType::bf16, {tokens, 2, s.hidden}, {.align = s.align});
  auto out = s.transposed ? k.output("out", DType::e4m3, {s.hidden, tokens})
                          : k.output("out", DType::e4m3, {tokens, s.hidden});
  auto out_sf = k.output("out_sf", DType::f32, {tokens / s.run, s.hidden});
  const Value clamp = s.has_clamp ? k.scalar("clamp_value", DType::f32) : Value();
  const TileOrigin at =
      launch_tiles(k, tokens, kTokens, s.hidden, tile.cols, tile.threads(), kBlocksPerSm);
  k.assume(at.row + (kTokens - 1) < tokens);  // a multiple of kTokens, so
  k.assume(at.row / s.run + (kTokens / s.run - 1) < tokens / s.run);

  // load
  const auto hint = hint_of(s);
  std::vector<Ref> halves;  // gate, up: (tokens, cols)
  for (const int64_t half : {0, 1}) {
    halves.push_back(k.fragment(DType::bf16, tile.values(), half == 0 ? "gate" : "up"));
    k.parallel({kTokens, tile.cols}, [&](Value t, Value c) {
      halves.back()(t, c) = x.cached(hint)(at.row + t, half, at.col + c);
    });
  }

  // activation, stored in the gate's registers
  const Ref v = halves[0];
  k.parallel({kTokens, tile.cols}, [&](Value t, Value c) {
    const GatedPair pair{f32(v(t, c)), f32(halves[1](t, c))};
    v(t, c) = cast(DType::bf16, (s.has_clamp ? pair.clamped(clamp) : pair).activated());
  });
  cast_columns(k, tile, s.run, s.round_sf, at, v, out_sf, out, s.transposed);
  return k.finish();
}

}  // namespace

void add_swiglu_channel_cast(const Call& c, Launches& go, bool transposed) {
  const Spec s{.hidden = c.i32("H"),
               .run = c.i32("num_per_tokens"),
               .align = static_cast<uint8_t>(c.align({"x"})),
               .round_sf = c.flag("round_sf"),
               .has_clamp = c.has_value("swiglu_clamp_value"),
               .transposed = transposed};
  Args args;
  args.tensors.push_back({"x", reshaped(c.given("x"), {c["T"], 2, s.hidden})});
  if (s.has_clamp) args.scalars.push_back({"clamp_value", c.number("swiglu_clamp_value")});
  const std::string op(c.op().name);
  go.add([&](const Spec& spec) { return build_swiglu_channel_cast(op, spec); }, s, args);
}

}  // namespace tessera::kernels
