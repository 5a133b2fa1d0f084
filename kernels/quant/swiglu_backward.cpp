// swiglu_backward: gradients of the gated activation, its input recomputed from codes.
//
// Shapes   x [rows, 2, hidden] (gate, up), grad_out [rows, hidden], out [rows, hidden],
//          grad_x and grad_x_fp8 [rows, 2, hidden], weights and their gradients [entries]
// Dtypes   x and grad_x_fp8 e4m3 with f32 scales per group, grad_out, out, grad_x bf16, weights f32
// Method   a block per row, or some short rows: all of a row's inputs are read before the first is
//          used, 8 columns per access and thread, then chunk after chunk is computed, cast and
//          stored. Threads of a group share its maximum by shuffles. The dot product of a row is
//          summed per thread, then over the threads, in an order that `hidden` decides. Blocks also
//          clear the gradients of entries that no row owns. Each byte moves once, so the bound is
//          bytes / copy bandwidth.
// Maths    with s = 1 / (1 + exp(-x)): act = x / (1 + exp(-x)) * y, out = act * w,
//          dx = ((g * w * s) * y) * fma(x, 1 - s, 1), dy = (g * w * s) * x, grad_weight = sum of
//          g * act; every step rounded; +0 where a clamp holds
// Tuned    H100: 90 % of copy for 7842 tokens of 2 experts.

#include "kernels/quant/swiglu_backward.h"

#include <optional>
#include <vector>

#include "kernels/quant/gated.h"
#include "kernels/quant/scale_factor.h"
#include "kernels/quant/token_cast.h"
#include "kernels/value_check.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kVector = 8;  // columns of an access: 16 bytes of bf16

/// Rows of a block in registers, chunk after chunk of one vector per thread.
struct RowChunks {
  explicit RowChunks(const SwigluBackwardSpec& s)
      : tile(whole_row_tile(s.hidden, kVector)),
        rows(tile.rows),
        lanes(tile.threads / rows),
        chunk(lanes * kVector),
        chunks(tile.cols / chunk),
        group(s.group) {}

  /// (rows, groups of a chunk): each in the threads of the group
  layout::Layout scales() const {
    const int64_t groups = chunk / group, threads = group / kVector;
    return {{rows, groups}, {{0, 1, rows, lanes, 0}, {1, 1, groups, threads, 0}}, {{threads, 1}}};
  }
  /// (rows, halves, columns of a chunk)
  layout::Layout gradients() const {
    return {{rows, 2, chunk},
            {{0, 1, rows, lanes, 0},
             {1, 1, 2, 0, kVector},
             {2, 1, kVector, 0, 1},
             {2, kVector, lanes, 1, 0}}};
  }
  /// (rows, columns of a chunk)
  layout::Layout columns() const {
    return {{rows, chunk},
            {{0, 1, rows, lanes, 0}, {1, 1, kVector, 0, 1}, {1, kVector, lanes, 1, 0}}};
  }
  /// (rows): each in all of its threads
  layout::Layout of_row() const { return {{rows}, {{0, 1, rows, lanes, 0}}, {{lanes, 1}}}; }

  TokenTile tile;
  int64_t rows, lanes, chunk, chunks, group;
};

/// One element of the backward pass.
struct Gradient {
  dsl::Value activation, gate, up;
};
Gradient gradient_of(dsl::Builder& k, GatedPair pair, const dsl::Value& grad_out,
                     const dsl::Value& weight, const std::optional<dsl::Value>& clamp) {
  using namespace dsl;
  pair = {k.let("x", pair.gate), k.let("y", pair.up)};
  const GatedPair given = pair;
  if (clamp) {
    pair = pair.clamped(*clamp);
    pair = {k.let("clamped_x", pair.gate), k.let("clamped_y", pair.up)};
  }
  auto s = k.let("s", 1.0f / (1.0f + exp(-pair.gate)));
  auto scaled = k.let("scaled", grad_out * weight * s);
  auto dx = scaled * pair.up * fma(pair.gate, 1.0f - s, 1.0f);
  auto dy = scaled * pair.gate;
  if (!clamp) return {pair.activated(), dx, dy};
  return {pair.activated(), select(given.gate > *clamp, 0.0f, dx),
          select(given.up > *clamp || given.up < -*clamp, 0.0f, dy)};
}

}  // namespace

ir::Kernel build_swiglu_backward(const SwigluBackwardSpec& s) {
  using namespace dsl;
  const RowChunks at_once(s);
  const int64_t num_rows = at_once.rows, chunks = at_once.chunks, chunk = at_once.chunk;
  const int64_t groups = chunk / s.group, threads = at_once.tile.threads;

  Builder k("swiglu_backward_and_per_token_cast");
  std::optional<Value> rows, entries;
  std::optional<Ref> slots, weights, positions, grad_weight;
  if (s.has_rows) {
    rows = k.dim("rows");
    slots = k.input("pos_to_token_topk", DType::i32, {*rows}, {.align = 4});
  }
  if (s.has_entries) {
    entries = k.dim("entries");
    positions = k.input("token_topk_to_pos", DType::i32, {*entries}, {.align = 4});
    grad_weight = k.output("grad_weight", DType::f32, {*entries}, {.align = 4});
  }
  if (!s.has_rows) {
    const auto at = k.launch({ceil_div(*entries, threads)}, {.threads = static_cast<int>(threads)});
    k.parallel({threads}, [&](Value i) { (*grad_weight)(at.x * threads + i) = 0.0f; });
    return k.finish();
  }
  if (s.has_entries) weights = k.input("weight", DType::f32, {*entries}, {.align = 4});
  auto x = k.input("x", DType::e4m3, {*rows, 2, s.hidden}, {.align = s.align});
  auto x_sf = k.input("x_sf", DType::f32, {*rows, 2, s.hidden / s.group}, {.align = 4});
  auto grad_out = k.input("grad_out", DType::bf16, {*rows, s.hidden}, {.align = s.align});
  auto out = k.output("out", DType::bf16, {*rows, s.hidden});
  auto codes = k.output("grad_x_fp8", DType::e4m3, {*rows, 2, s.hidden});
  auto codes_sf =
      k.output("grad_x_fp8_sf", DType::f32, {*rows, 2, s.hidden / s.group}, {.align = 4});
  auto grad_x = k.output("grad_x", DType::bf16, {*rows, 2, s.hidden});
  const std::optional<Value> clamp =
      s.has_clamp ? std::optional(k.scalar("clamp_value", DType::f32)) : std::nullopt;
  const Value row_blocks = ceil_div(*rows, num_rows);
  const Value blocks = s.has_entries ? max(row_blocks, ceil_div(*entries, threads)) : row_blocks;
  // Left alone, ptxas spills to have 5 blocks of 128 threads on an SM.
  const auto at = k.launch({blocks}, {.threads = static_cast<int>(threads),
                                      .min_blocks_per_sm = static_cast<int>(512 / threads)});
  const Value first = k.let("row", at.x * num_rows);

  // load
  const auto evict = CacheHint::evict_first;
  auto slot = k.fragment(DType::i32, at_once.of_row(), "slot");  // (rows)
  k.copy(slots->tile({first}, {num_rows}), slot, {.outside = -1});
  struct Chunk {
    int64_t col, group;              // the first ones
    Ref gate, up, grad;              // (rows, columns)
    Ref scale_of_gate, scale_of_up;  // (rows, groups)
  };
  std::vector<Chunk> loaded;
  for (int64_t i = 0; i < chunks; ++i) {
    const layout::Layout columns = at_once.columns();
    loaded.push_back({i * chunk, i * groups, k.fragment(DType::e4m3, columns, "gate"),
                      k.fragment(DType::e4m3, columns, "up"),
                      k.fragment(DType::bf16, columns, "grad"),
                      k.fragment(DType::f32, at_once.scales(), "scale_of_gate"),
                      k.fragment(DType::f32, at_once.scales(), "scale_of_up")});
    const Chunk& part = loaded.back();
    k.parallel({num_rows, chunk}, [&](Value r, Value c) {
      part.gate(r, c) = x.cached(evict)(first + r, 0, part.col + c);
    });
    k.parallel({num_rows, chunk}, [&](Value r, Value c) {
      part.up(r, c) = x.cached(evict)(first + r, 1, part.col + c);
    });
    k.parallel({num_rows, chunk}, [&](Value r, Value c) {
      part.grad(r, c) = grad_out.cached(evict)(first + r, part.col + c);
    });
    k.parallel({num_rows, groups}, [&](Value r, Value g) {
      part.scale_of_gate(r, g) = x_sf(first + r, 0, part.group + g);
    });
    k.parallel({num_rows, groups}, [&](Value r, Value g) {
      part.scale_of_up(r, g) = x_sf(first + r, 1, part.group + g);
    });
  }
  auto weight = k.fragment(DType::f32, at_once.of_row(), "weight");  // (rows)
  k.parallel({num_rows}, [&](Value r) {
    if (!s.has_entries) {
      weight(r) = 0.0f;
      return;
    }
    k.report_unless(slot(r) < *entries, out_of_range("pos_to_token_topk"));
    weight(r) = (*weights)(slot(r));  // 0 outside
  });

  // gradients, chunk by chunk
  auto dot = k.fragment(DType::f32, at_once.columns(), "dot");  // (rows, columns)
  k.fill(dot, 0.0f);
  for (const Chunk& part : loaded) {
    auto d = k.fragment(DType::f32, at_once.gradients(), "d");  // (rows, halves, columns)
    k.parallel({num_rows, chunk}, [&](Value r, Value c) {
      const GatedPair pair{f32(part.gate(r, c)) * part.scale_of_gate(r, c / s.group),
                           f32(part.up(r, c)) * part.scale_of_up(r, c / s.group)};
      auto g = k.let("g", f32(part.grad(r, c)));
      const Gradient result = gradient_of(k, pair, g, weight(r), clamp);
      auto activation = k.let("activation", result.activation);
      dot(r, c) = dot(r, c) + g * activation;
      out(first + r, part.col + c) = cast(DType::bf16, activation * weight(r));
      d(r, 0, c) = result.gate;
      d(r, 1, c) = result.up;
    });
    auto amax = k.fragment(DType::f32, {num_rows, 2, groups}, "amax");  // (rows, halves, groups)
    k.reduce_absmax(d.reshape({num_rows, 2, groups, s.group}), amax, Axis(3));
    auto inverse = k.fragment(DType::f32, {num_rows, 2, groups}, "inverse");
    k.parallel({num_rows, 2, groups}, [&](Value r, Value half, Value g) {
      auto sf = scale_factor(k, kE4m3, amax(r, half, g), s.round_sf);
      inverse(r, half, g) = sf.inverse;
      codes_sf(first + r, half, part.group + g) = sf.scale;
    });
    k.parallel({num_rows, 2, chunk}, [&](Value r, Value half, Value c) {
      grad_x(first + r, half, part.col + c) = cast(DType::bf16, d(r, half, c));
    });
    k.parallel({num_rows, 2, chunk}, [&](Value r, Value half, Value c) {
      codes(first + r, half, part.col + c) =
          cast(DType::e4m3, d(r, half, c) * inverse(r, half, c / s.group));
    });
  }
  if (!s.has_entries) return k.finish();

  // The gradient of a weight is that of the row where its entry lives, if the row agrees.
  auto sum = k.fragment(DType::f32, {num_rows}, "sum");  // (rows)
  k.reduce_sum(dot, sum, Axis(1));
  k.parallel({num_rows}, [&](Value r) {
    k.if_(slot(r) >= 0 && slot(r) < *entries && (*positions)(slot(r)) == first + r,
          [&] { (*grad_weight)(slot(r)) = sum(r); });
  });
  k.parallel({threads}, [&](Value i) {
    const Value entry = k.let("entry", at.x * threads + i);
    k.if_(entry < *entries, [&] {
      const Value row = k.let("row_of_entry", (*positions)(entry));
      k.report_unless(row < *rows, out_of_range("token_topk_to_pos"));
      k.if_(!(row >= 0 && row < *rows && (*slots)(row) == entry),
            [&] { (*grad_weight)(entry) = 0.0f; });
    });
  });
  return k.finish();
}

}  // namespace tessera::kernels
