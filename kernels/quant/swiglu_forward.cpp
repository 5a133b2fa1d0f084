// swiglu_forward: gated activation, then the cast of per_token_cast.
//
// Shapes   x [rows, 2, hidden] (gate, up), out [rows, hidden], out_sf [rows, ceil(hidden / group)]
// Dtypes   x bf16|f32, out e4m3, out_sf f32 or the exponents of powers of two, clamped_count i64
// Method   one pass: both halves of a tile in registers, activation, amax per group (warp shuffles),
//          scale, cast, store. x is read once, so the bound is bytes / copy bandwidth. Clamped values
//          are counted per block and added by at most three atomics.
// Maths    v = gate / (1 + exp(-gate)) * up * weight in f32, every step rounded; scale and code: see
//          scale_factor.h
// Tuned    H200: values_per_thread

#include "kernels/quant/swiglu_forward.h"

#include <limits>
#include <optional>
#include <vector>

#include "kernels/quant/scale_access.h"
#include "kernels/quant/token_cast.h"
#include "kernels/quant/token_grid.h"
#include "kernels/value_check.h"

namespace tessera::kernels {
namespace {

using Weights = SwigluSpec::Weights;

TokenTile pick_tile(const SwigluSpec& s) {
  TokenCastSpec cast{};
  cast.in = s.in;
  cast.hidden = s.hidden;
  cast.group = s.group;
  if (!is_ordinary_group(s.group)) return whole_row_tile(s.hidden, 8, 32);
  TokenTile tile = pick_token_tile(cast, ScaleWriter::cols_together(s.sf_layout));
  tile.rows = s.per_thread * tile.threads / tile.cols;
  return tile;
}

}  // namespace

int32_t values_per_thread(const SwigluSpec& s, int64_t rows) {
  // Short threads get over the latency where all blocks are on an H200 at once. Many short blocks cost
  // more, above all the atomics of their counts. Of 32 values ptxas reads one row after the other.
  return rows * s.hidden <= int64_t{1} << (s.has_count ? 18 : 21) ? 8 : 16;
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
  if (s.has_count) counts = k.output("clamped_count", DType::i64, {3}, {.align = 8});
  auto amax_floor = k.scalar("amax_floor", DType::f32);
  const Value clamp = s.has_clamp ? k.scalar("clamp_value", DType::f32) : Value();
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads);

  // load
  std::vector<Ref> halves;  // gate, up: (rows, cols)
  for (const int64_t half : {0, 1}) {
    halves.push_back(k.fragment(s.in, {tile.rows, tile.cols}, half == 0 ? "gate" : "up"));
    k.parallel({tile.rows, tile.cols},
               [&](Value r, Value c) { halves.back()(r, c) = x(at.row + r, half, at.col + c); });
  }
  std::optional<Ref> weight, expert;  // (rows); a negative expert marks padding
  if (s.weights != Weights::none) weight = k.fragment(DType::f32, {tile.rows}, "weight");
  if (s.weights == Weights::all_zero) k.fill(*weight, 0.0f);
  if (s.weights == Weights::given) {
    k.parallel({tile.rows}, [&](Value r) {
      Value slot = (*slots)(at.row + r);
      k.report_unless(slot < num_weights, out_of_range("pos_to_token_topk"));
      (*weight)(r) = (*weights)(slot);
    });
  }
  if (s.has_experts) {
    expert = k.fragment(DType::i32, {tile.rows}, "expert");
    k.parallel({tile.rows}, [&](Value r) { (*expert)(r) = (*experts)(at.row + r); });
  }

  // activation
  const auto unless_padding = [&](const Value& r, const Value& value, const Arg& otherwise) {
    return s.has_experts ? select((*expert)(r) >= 0, value, otherwise) : value;
  };
  auto v = k.fragment(DType::f32, {tile.rows, tile.cols}, "v");  // (rows, cols)
  // What a row is clamped at. Nothing of padding is beyond infinity, so that one comparison clamps
  // and counts.
  std::optional<Ref> limit;    // (rows)
  std::optional<Ref> clamped;  // of a thread: gate above, up above, up below
  if (s.has_clamp) {
    limit = k.fragment(DType::f32, {tile.rows}, "limit");
    k.parallel({tile.rows}, [&](Value r) {
      (*limit)(r) = unless_padding(r, clamp, std::numeric_limits<float>::infinity());
    });
  }
  if (s.has_count) {
    clamped = k.local(DType::i32, {3}, "clamped");
    k.unrolled(3, [&](Value which) { (*clamped)(which) = 0; });
  }
  k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
    auto gate = f32(halves[0](r, c)), up = f32(halves[1](r, c));
    if (s.has_clamp) {  // comparisons, so that a NaN stays
      const Value most = (*limit)(r);
      const Value beyond[] = {gate > most, up > most, up < -most};
      for (int which = 0; s.has_count && which < 3; ++which) {
        (*clamped)(which) = (*clamped)(which) + select(beyond[which], i32(1), i32(0));
      }
      gate = k.let("gate", select(beyond[0], most, gate));
      up = k.let("up", select(beyond[1], most, select(beyond[2], -most, up)));
    }
    const auto activate = [&] {
      auto value = silu(gate) * up;
      v(r, c) = s.weights != Weights::none ? value * (*weight)(r) : value;
    };
    if (s.has_experts) {  // one branch for all values of a row: their operands are read before it
      k.if_else((*expert)(r) >= 0, activate, [&] { v(r, c) = 0.0f; });
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
    sf.scale = unless_padding(r, sf.scale, 0.0f);
    if (s.round_sf) sf.exponent = unless_padding(r, sf.exponent, 0);
    out_sf.store(at.row + r, at.col_tile * tile.groups + g, sf);
  });

  // cast and store
  auto codes = k.fragment(DType::e4m3, {tile.rows, tile.cols}, "codes");  // (rows, cols)
  k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
    codes(r, c) = cast(DType::e4m3, v(r, c) * inverse(r, c / tile.group));
  });
  k.copy(codes, out.tile({at.row, at.col}, {tile.rows, tile.cols}));

  // add what was clamped
  if (s.has_count) {
    const int64_t warps = tile.threads / 32;
    auto warp_counts = k.shared(DType::i32, {3, warps}, "warp_counts");
    std::vector<Value> sums;
    for (int which = 0; which < 3; ++which) sums.push_back(k.warp_sum((*clamped)(which)));
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
