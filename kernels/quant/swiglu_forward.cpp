// swiglu_forward: gated activation, then the cast of per_token_cast.
//
// Shapes   x [rows, 2, hidden] (gate, up), out [rows, hidden], out_sf [rows, ceil(hidden / group)]
// Dtypes   x bf16|f32, out e4m3, out_sf f32 or the exponents of powers of two, clamped_count i64
// Method   one pass: both halves of a tile in registers, activation, amax per group (warp shuffles),
//          scale, cast, store. x is read once, so the bound is bytes / copy bandwidth. Clamped values
//          are counted per block and added by at most three atomics.
// Maths    v = gate / (1 + exp(-gate)) * up * weight in f32, every step rounded; scale and code: see
//          scale_factor.h
// Tuned    H200: cut_work, pick_tile

#include "kernels/quant/swiglu_forward.h"

#include <optional>
#include <vector>

#include "kernels/quant/gated.h"
#include "kernels/quant/scale_access.h"
#include "kernels/quant/token_cast.h"
#include "kernels/quant/token_grid.h"
#include "kernels/value_check.h"

namespace tessera::kernels {
namespace {

using Weights = SwigluSpec::Weights;

bool has_count(const SwigluSpec& s) {
  return s.clamp == SwigluSpec::Clamp::counted;
}

TokenTile pick_tile(const SwigluSpec& s) {
  TokenCastSpec cast{};
  cast.in = s.in;
  cast.hidden = s.hidden;
  cast.group = s.group;
  if (!is_ordinary_group(s.group)) return whole_row_tile(s.hidden, 8, 32);
  TokenTile tile = pick_token_tile(cast, ScaleWriter::cols_together(s.sf_layout));
  // Small blocks keep the SMs evenly busy, but each one adds what it has counted.
  if (s.per_thread == 16 && !has_count(s)) tile.threads = 64;
  tile.rows = s.per_thread * tile.threads / tile.cols;
  return tile;
}

/// Each thread has two runs of 8 columns, in one group: (rows, cols).
layout::Layout runs_of_a_group(const TokenTile& tile) {
  return layout::Layout({tile.rows, tile.cols}, {{0, 1, tile.rows, tile.groups * 8, 0},
                                                 {1, 128, tile.groups, 8, 0},
                                                 {1, 64, 2, 0, 8},
                                                 {1, 8, 8, 1, 0},
                                                 {1, 1, 8, 0, 1}});
}

}  // namespace

void cut_work(SwigluSpec& s, int64_t rows) {
  const int64_t values = rows * s.hidden;
  // Short threads get over the latency where all blocks are on an H200 at once. Many short blocks cost
  // more, above all the atomics of their counts.
  s.per_thread = values <= int64_t{1} << (has_count(s) ? 18 : 21) ? 8 : 16;
  // ptxas reads `up` behind the activation of `gate` unless it has registers to spare or a branch
  // on padding stands between. Few blocks leave them.
  s.blocks_per_sm = is_ordinary_group(s.group) && !s.has_experts && values <= 1 << 20 ? 10 : 0;
}

ir::Kernel build_swiglu_forward(const SwigluSpec& s) {
  using namespace dsl;
  const TokenTile tile = pick_tile(s);

  Builder k("swiglu_forward_and_per_token_cast");
  auto rows = k.dim("rows");
  auto x = k.input("x", s.in, {rows, 2, s.hidden}, {.align = s.align});
  std::optional<Ref> slots, weights, experts;
  Value num_weights;
  if (s.weights == Weights::given) {
    slots = k.input("pos_to_token_topk", DType::i32, {rows}, {.align = 4});
    num_weights = k.dim("num_weights");
    weights = k.input("topk_weights", DType::f32, {num_weights}, {.align = 4});
  }
  if (s.has_experts) {
    experts = k.input("pos_to_expert", DType::i32, {rows}, {.align = 4});
  }
  auto out = k.output("out", DType::e4m3, {rows, s.hidden});
  const ScaleWriter out_sf(k, s.sf_layout, rows, num_blocks(s.hidden, s.group));
  std::optional<Ref> counts;
  if (has_count(s)) counts = k.output("clamped_count", DType::i64, {3}, {.align = 8});
  const Arg amax_floor =
      s.has_floor ? Arg(k.scalar("amax_floor", DType::f32)) : Arg(kE4m3.amax_floor);
  const bool has_clamp = s.clamp != SwigluSpec::Clamp::none;
  const Value clamp = has_clamp ? k.scalar("clamp_value", DType::f32) : Value();
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads, s.blocks_per_sm);

  // load. Counting is bound by instructions, and slower with the hint.
  const auto hint = has_count(s) ? CacheHint::none : CacheHint::evict_first;
  const bool has_runs = s.per_thread == 16 && is_ordinary_group(s.group);
  std::vector<Ref> halves;  // gate, up: (rows, cols)
  for (const int64_t half : {0, 1}) {
    const char* name = half == 0 ? "gate" : "up";
    halves.push_back(has_runs ? k.fragment(s.in, runs_of_a_group(tile), name)
                              : k.fragment(s.in, {tile.rows, tile.cols}, name));
    k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
      halves.back()(r, c) = x.cached(hint)(at.row + r, half, at.col + c);
    });
  }
  std::optional<Ref> weight, expert;  // (rows); a negative expert marks padding
  if (s.has_experts) {
    expert = k.fragment(DType::i32, {tile.rows}, "expert");
    k.parallel({tile.rows}, [&](Value r) { (*expert)(r) = (*experts)(at.row + r); });
  }
  const auto is_valid = [&](const Value& r) { return (*expert)(r) >= 0; };
  if (s.weights != Weights::none) weight = k.fragment(DType::f32, {tile.rows}, "weight");
  if (s.weights == Weights::all_zero) k.fill(*weight, 0.0f);
  if (s.weights == Weights::given) {
    k.parallel({tile.rows}, [&](Value r) {
      Value slot = (*slots)(at.row + r);
      const Value fits = slot < num_weights;
      k.report_unless(s.has_experts ? fits || !is_valid(r) : fits,
                      out_of_range("pos_to_token_topk"));
      (*weight)(r) = (*weights)(slot);
    });
  }

  // activation
  auto v = k.fragment(DType::f32, {tile.rows, tile.cols}, "v");  // (rows, cols)
  std::optional<Ref> clamped;  // of a thread: gate above, up above, up below
  if (has_count(s)) {
    clamped = k.local(DType::f32, {3}, "clamped");
    k.unrolled(3, [&](Value which) { (*clamped)(which) = 0.0f; });
  }
  k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
    const auto activate = [&] {
      GatedPair pair{f32(halves[0](r, c)), f32(halves[1](r, c))};
      if (has_count(s)) {
        pair = {k.let("gate", pair.gate), k.let("up", pair.up)};
        const Value beyond[] = {pair.gate > clamp, pair.up > clamp, pair.up < -clamp};
        for (int which = 0; which < 3; ++which) {
          (*clamped)(which) = (*clamped)(which) + select(beyond[which], 1.0f, 0.0f);
        }
      }
      auto value = (has_clamp ? pair.clamped(clamp) : pair).activated();
      v(r, c) = s.weights != Weights::none ? value * (*weight)(r) : value;
    };
    if (s.has_experts) {
      k.if_else(is_valid(r), activate, [&] { v(r, c) = 0.0f; });
    } else {
      activate();
    }
  });

  // amax per group
  auto amax = k.fragment(DType::f32, {tile.rows, tile.groups}, "amax");  // (rows, groups)
  k.reduce_absmax(v.reshape({tile.rows, tile.groups, tile.group}), amax, Axis(2));

  // scales
  auto inverse = k.fragment(DType::f32, {tile.rows, tile.groups}, "inverse");  // (rows, groups)
  k.parallel({tile.rows, tile.groups}, [&](Value r, Value g) {
    auto sf = scale_factor(k, kE4m3.max, amax_floor, amax(r, g), s.round_sf);
    inverse(r, g) = sf.inverse;
    if (s.has_experts) {
      sf.scale = select(is_valid(r), sf.scale, 0.0f);
      if (s.round_sf) sf.exponent = select(is_valid(r), sf.exponent, 0);
    }
    out_sf.store(at.row + r, at.col_tile * tile.groups + g, sf);
  });

  // cast and store
  auto codes = k.fragment(DType::e4m3, {tile.rows, tile.cols}, "codes");  // (rows, cols)
  k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
    codes(r, c) = cast(DType::e4m3, v(r, c) * inverse(r, c / tile.group));
  });
  k.copy(codes, out.tile({at.row, at.col}, {tile.rows, tile.cols}));

  // add what was clamped
  if (has_count(s)) {
    const int64_t warps = tile.threads / 32;
    auto warp_counts = k.shared(DType::i32, {3, warps}, "warp_counts");
    std::vector<Value> sums;
    for (int which = 0; which < 3; ++which) sums.push_back(k.warp_sum(i32((*clamped)(which))));
    k.if_(k.lane() == 0, [&] {
      for (int which = 0; which < 3; ++which) {
        warp_counts(which, k.warp()) = sums[static_cast<size_t>(which)];
      }
    });
    k.if_(k.thread() < 3, [&] {
      auto total = k.var(DType::i32, 0, "total");
      k.unrolled(warps, [&](Value warp) { total += warp_counts(k.thread(), warp); });
      k.if_(total > 0, [&] { k.atomic_add((*counts)(k.thread()), i64(total)); });
    });
  }
  return k.finish();
}

}  // namespace tessera::kernels
