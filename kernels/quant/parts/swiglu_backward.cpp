// swiglu_backward: gradients of the gated activation, with its input recomputed from codes.
//
// Shapes   x [rows, 2, hidden] (gate, up), grad_out [rows, hidden], out [rows, hidden],
//          grad_x and grad_x_fp8 [rows, 2, hidden], weights and their gradients [entries]
// Dtypes   x and grad_x_fp8 e4m3 with f32 scales per group, grad_out, out, grad_x bf16, weights f32
// Method   a block per row, or per few short rows. It loads all inputs of a row before the first
//          use, 8 columns per access and thread; then it computes, casts and stores chunk by chunk.
//          The threads of a group share its maximum by shuffles. Each thread sums its part of a
//          row's dot product, then the threads add up, in an order that depends on `hidden`. Blocks
//          also clear the gradients of entries that no row owns. Each byte moves once, so the bound
//          is bytes / copy bandwidth.
// Maths    with s = 1 / (1 + exp(-x)): act = x / (1 + exp(-x)) * y, out = act * w,
//          dx = ((g * w * s) * y) * fma(x, 1 - s, 1), dy = (g * w * s) * x, grad_weight = sum of
//          g * act; every step rounded; +0 where a clamp holds. Rows of padding give zeros.
// Tuned    7842 tokens of 2 experts: 225 us on an H200 (peer 260), 269 on an H100, 90 % of copy; there
//          384, 640 and 768 threads per SM 270, 286 and 327, loads past L1 269, evict_first stores 276.

#include "kernels/quant/parts/swiglu_backward.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/checks/value_check.h"
#include "kernels/quant/parts/entry_gradients.h"
#include "kernels/quant/parts/gated.h"
#include "kernels/quant/parts/row_chunks.h"
#include "kernels/quant/parts/scale_factor.h"

namespace tessera::kernels {

ir::Kernel build_swiglu_backward(const SwigluBackwardSpec& s) {
  using namespace dsl;
  const RowChunks at_once(s.hidden, s.group);
  const int64_t num_rows = at_once.rows, chunks = at_once.chunks, chunk = at_once.chunk;
  const int64_t groups = chunk / s.group, threads = at_once.tile.threads;

  Builder k("swiglu_backward_and_per_token_cast");
  std::optional<Value> rows;
  std::optional<Ref> slots, weights;
  if (s.has_rows) {
    rows = k.dim("rows");
    slots = k.input("pos_to_token_topk", DType::i32, {*rows}, {.align = 4});
  }
  std::optional<EntryGradients> entries;
  if (s.has_entries) entries.emplace(k, threads);
  if (!s.has_rows) {
    const auto at = k.launch({entries->blocks()}, {.threads = static_cast<int>(threads)});
    entries->clear(at.x);
    return k.finish();
  }
  if (entries) weights = k.input("weight", DType::f32, {entries->num_entries()}, {.align = 4});
  auto x = k.input("x", DType::e4m3, {*rows, 2, s.hidden}, {.align = s.align});
  const int64_t row_groups = s.hidden / s.group;
  auto x_sf = k.input("x_sf", DType::f32, {*rows, 2, row_groups},
                      {.strides = {k.stride("x_sf_stride"), row_groups, 1}, .align = 4});
  auto grad_out =
      k.input("grad_out", DType::bf16, {*rows, s.hidden}, {.align = std::max<int>(s.align, 2)});
  auto out = k.output("out", DType::bf16, {*rows, s.hidden});
  auto codes = k.output("grad_x_fp8", DType::e4m3, {*rows, 2, s.hidden});
  auto codes_sf = k.output("grad_x_fp8_sf", DType::f32, {*rows, 2, row_groups}, {.align = 4});
  auto grad_x = k.output("grad_x", DType::bf16, {*rows, 2, s.hidden});
  const std::optional<Value> clamp =
      s.has_clamp ? std::optional(k.scalar("clamp_value", DType::f32)) : std::nullopt;
  const Value row_blocks = ceil_div(*rows, num_rows);
  const Value blocks = entries ? max(row_blocks, entries->blocks()) : row_blocks;
  // Launch bound: by itself ptxas spills to fit 5 blocks of 128 threads on an SM.
  const auto at = k.launch({blocks}, {.threads = static_cast<int>(threads),
                                      .min_blocks_per_sm = static_cast<int>(512 / threads)});
  const Value first = k.let("row", at.x * num_rows);

  // load
  const Ref x_once = x.cached(CacheHint::evict_first);
  const Ref grad_once = grad_out.cached(CacheHint::evict_first);
  const auto load = [&](const Ref& to, int64_t width, const auto& from) {
    k.parallel({num_rows, width}, [&](Value r, Value c) { to(r, c) = from(first + r, c); });
  };
  auto slot = k.fragment(DType::i32, at_once.of_row(), "slot");  // (rows)
  k.copy(slots->tile({first}, {num_rows}), slot, {.outside = -1});
  struct Chunk {
    int64_t col, group;              // of the first column
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
    load(part.gate, chunk, [&](Value row, Value c) { return x_once(row, 0, part.col + c); });
    load(part.up, chunk, [&](Value row, Value c) { return x_once(row, 1, part.col + c); });
    load(part.grad, chunk, [&](Value row, Value c) { return grad_once(row, part.col + c); });
    load(part.scale_of_gate, groups,
         [&](Value row, Value g) { return x_sf(row, 0, part.group + g); });
    load(part.scale_of_up, groups,
         [&](Value row, Value g) { return x_sf(row, 1, part.group + g); });
  }
  auto weight = k.fragment(DType::f32, at_once.of_row(), "weight");  // (rows)
  k.parallel({num_rows}, [&](Value r) {
    if (!entries) {
      weight(r) = 0.0f;
      return;
    }
    k.report_unless(slot(r) < entries->num_entries(), out_of_range("pos_to_token_topk"));
    weight(r) = (*weights)(slot(r));  // 0 outside
  });

  const auto has_weight = [&](const Value& r) {
    return slot(r) >= 0 && slot(r) < entries->num_entries();
  };

  // gradients, chunk by chunk
  auto dot = k.fragment(DType::f32, at_once.columns(), "dot");  // (rows, columns)
  k.fill(dot, 0.0f);
  for (const Chunk& part : loaded) {
    auto d = k.fragment(DType::f32, at_once.gradients(), "d");  // (rows, halves, columns)
    k.parallel({num_rows, chunk}, [&](Value r, Value c) {
      const GatedPair pair{f32(part.gate(r, c)) * part.scale_of_gate(r, c / s.group),
                           f32(part.up(r, c)) * part.scale_of_up(r, c / s.group)};
      auto g = k.let("g", f32(part.grad(r, c)));
      const GatedGradient result = gated_gradient(k, pair, g, weight(r), clamp);
      auto activation = k.let("activation", result.activation);
      dot(r, c) = dot(r, c) + g * activation;
      // The weight of padding is 0. That times NaN or infinity is NaN, which a row of padding may
      // hold; zeros keep their signs.
      const auto or_zero = [&](const char* name, const Value& value) {
        auto v = k.let(name, value);
        const Value is_zero = v == 0.0f;
        return select(entries ? has_weight(r) || is_zero : is_zero, v, 0.0f);
      };
      out(first + r, part.col + c) = cast(DType::bf16, or_zero("weighted", activation * weight(r)));
      d(r, 0, c) = or_zero("dx", result.gate);
      d(r, 1, c) = or_zero("dy", result.up);
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
  if (!entries) return k.finish();
  // gradients of the weights
  auto sum = k.fragment(DType::f32, {num_rows}, "sum");  // (rows)
  k.reduce_sum(dot, sum, Axis(1));
  entries->store(num_rows, slot, sum, first);
  entries->clear_unowned(at.x, *slots, *rows);
  return k.finish();
}

}  // namespace tessera::kernels
