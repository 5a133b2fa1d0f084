// swiglu_forward: gated activation, then the cast of per_token_cast.
//
// Shapes   x [rows, 2, hidden] (gate, up), out [rows, hidden], out_sf [rows, ceil(hidden / group)]
// Dtypes   x bf16|f32, out e4m3, out_sf f32 or the exponents of powers of two, clamped_count i64
// Method   one pass: both halves of a tile in registers, activation, amax per group (warp shuffles),
//          scale, cast, store. x is read once, so the bound is bytes / copy bandwidth. Clamped values
//          are counted per block and added by at most three atomics.
// Maths    v = gate / (1 + exp(-gate)) * up * weight in f32, every step rounded; scale and code: see
//          scale_factor.h
// Tuned    H200: swiglu_tile.cpp

#include "kernels/quant/parts/swiglu_forward.h"

#include <optional>
#include <vector>

#include "kernels/checks/value_check.h"
#include "kernels/quant/parts/clamp_count.h"
#include "kernels/quant/parts/gated.h"
#include "kernels/quant/parts/scale_access.h"
#include "kernels/quant/parts/swiglu_tile.h"
#include "kernels/quant/parts/token_grid.h"
#include "kernels/serving/swiglu/parts/expert_rows.h"

namespace tessera::kernels {
namespace {

using Weights = SwigluSpec::Weights;
using Experts = SwigluSpec::Experts;
using dsl::Ref;
using dsl::Value;

/// Writes 0 for rows that an expert owns, else -1; `experts` are those of a tile.
void find_experts(dsl::Builder& k, const serving::ExpertRows& ends, const Value& first,
                  const TokenTile& tile, const Ref& experts) {
  const int64_t warps = tile.threads / 32;
  auto owned = k.shared(DType::boolean, {tile.rows}, "owned_rows");
  k.unrolled(num_blocks(tile.rows, warps), [&](Value i) {
    auto row = k.let("row_of_warp", i * warps + k.warp());
    k.if_(row < tile.rows, [&] {
      const Value is_owned = ends.owned(first + row);
      k.if_(k.lane() == 0, [&] { owned(row) = is_owned; });
    });
  });
  k.parallel({tile.rows}, [&](Value r) { experts(r) = select(owned(r), 0, -1); });
}

}  // namespace

ir::Kernel build_swiglu_forward(const SwigluSpec& s) {
  using namespace dsl;
  const TokenTile tile = pick_swiglu_tile(s);

  const bool has_experts = s.experts != Experts::none;
  Builder k(s.experts == Experts::by_ends ? "swiglu_psum_cast"
                                          : "swiglu_forward_and_per_token_cast");
  auto rows = k.dim("rows");
  auto x = k.input("x", s.in, {rows, 2, s.hidden}, {.align = s.align});
  std::optional<Ref> slots, weights, experts;
  Value num_weights;
  if (s.weights == Weights::given) {
    slots = k.input("pos_to_token_topk", DType::i32, {rows}, {.align = 4});
    num_weights = k.dim("num_weights");
    weights = k.input("topk_weights", DType::f32, {num_weights}, {.align = 4});
  }
  if (s.weights == Weights::of_rows) {
    weights = k.input("topk_weights", DType::f32, {rows}, {.align = 4});
  }
  std::optional<serving::ExpertRows> ends;
  if (s.experts == Experts::by_row) {
    experts = k.input("pos_to_expert", DType::i32, {rows}, {.align = 4});
  } else if (s.experts == Experts::by_ends) {
    ends.emplace(k);
  }
  auto out = k.output("out", DType::e4m3, {rows, s.hidden});
  const ScaleWriter out_sf(k, s.sf_layout, rows, num_blocks(s.hidden, s.group));
  std::optional<ClampCount> count;
  if (s.has_count()) count.emplace(k);
  const Arg amax_floor =
      s.has_floor ? Arg(k.scalar("amax_floor", DType::f32)) : Arg(kE4m3.amax_floor);
  const bool has_clamp = s.clamp != SwigluSpec::Clamp::none;
  const Value clamp = has_clamp ? k.scalar("clamp_value", DType::f32) : Value();
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads, s.blocks_per_sm);

  // Load. Counting is bound by instructions, and the hint slows it down.
  const auto hint = s.has_count() ? CacheHint::none : CacheHint::evict_first;
  const bool has_runs = s.per_thread == 16 && s.group == 128;
  std::vector<Ref> halves;  // gate, up: (rows, cols)
  for (const int64_t half : {0, 1}) {
    const char* name = half == 0 ? "gate" : "up";
    halves.push_back(has_runs ? k.fragment(s.in, runs_of_a_group(tile), name)
                              : k.fragment(s.in, {tile.rows, tile.cols}, name));
    k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
      halves.back()(r, c) = x.cached(hint)(at.row + r, half, at.col + c);
    });
  }
  std::optional<Ref> slot, weight, expert;  // (rows); a negative expert or slot marks padding
  if (has_experts) expert = k.fragment(DType::i32, {tile.rows}, "expert");
  if (experts) {
    k.parallel({tile.rows}, [&](Value r) { (*expert)(r) = (*experts)(at.row + r); });
  } else if (ends) {
    find_experts(k, *ends, at.row, tile, *expert);
    k.if_(at.row == 0 && at.col == 0, [&] { ends->report(rows, tile.threads); });
  }
  const auto is_valid = [&](const Value& r) { return (*expert)(r) >= 0; };
  if (s.weights != Weights::none) weight = k.fragment(DType::f32, {tile.rows}, "weight");
  if (s.weights == Weights::all_zero) k.fill(*weight, 0.0f);
  if (s.weights == Weights::of_rows) {
    k.parallel({tile.rows}, [&](Value r) { (*weight)(r) = (*weights)(at.row + r); });
  }
  if (s.weights == Weights::given) {
    slot = k.fragment(DType::i32, {tile.rows}, "slot");
    k.parallel({tile.rows}, [&](Value r) {
      (*slot)(r) = (*slots)(at.row + r);
      const Value fits = (*slot)(r) < num_weights;
      k.report_unless(has_experts ? fits || !is_valid(r) : fits, out_of_range("pos_to_token_topk"));
      (*weight)(r) = (*weights)((*slot)(r));  // 0 outside
    });
  }

  const auto has_weight = [&](const Value& r) {
    return (*slot)(r) >= 0 && (*slot)(r) < num_weights;
  };

  // activation
  auto v = k.fragment(DType::f32, {tile.rows, tile.cols}, "v");  // (rows, cols)
  if (count) count->start();
  k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
    const auto activate = [&] {
      GatedPair pair{f32(halves[0](r, c)), f32(halves[1](r, c))};
      if (count) {
        pair = {k.let("gate", pair.gate), k.let("up", pair.up)};
        count->add(pair, clamp);
      }
      auto value = (has_clamp ? pair.clamped(clamp) : pair).activated();
      if (s.weights == Weights::none) {
        v(r, c) = value;
        return;
      }
      if (s.weights == Weights::of_rows) {
        v(r, c) = value * (*weight)(r);
        return;
      }
      // 0 times NaN or infinity is NaN, which a row of padding may hold; zeros keep their signs.
      auto weighted = k.let("weighted", value * (*weight)(r));
      const Value is_zero = weighted == 0.0f;
      v(r, c) = select(slot ? has_weight(r) || is_zero : is_zero, weighted, 0.0f);
    };
    if (has_experts) {
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
    if (has_experts) {
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

  if (count) count->finish(tile.threads / 32);
  return k.finish();
}

}  // namespace tessera::kernels
