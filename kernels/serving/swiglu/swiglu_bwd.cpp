// swiglu_bwd: gradients of swiglu_fwd: of the rows, and of their weights.
//
// Shapes   x, grad_x [positions, 2, hidden] (gate, up), grad_out, out [positions, hidden], psum [experts],
//          topk_weights, grad_weight [positions]
// Dtypes   bf16|f32, weights f32
// Method   as swiglu_fwd; each step adds its products to the lanes of norm_row.h, whose total is the
//          gradient of a weight. The bound is bytes / copy bandwidth.
// Measured one H200, 49152 x 3072: 366 us, 97 % of copy.
// Lost     256 threads 383, a quarter of them idle in the second step; loads of all steps of a thread before the arithmetic of
//          the first 372, of 128 threads 408; 768 threads of an SM 429 and 372; an exponential and a slow path for each of
//          silu and sigmoid, products in registers until the row is stored 465.
// Maths    s = 1 / (1 + exp(-gate)); act = gate / (1 + exp(-gate)) up; grad_gate = ((g w) s up) fma(gate,
//          1 - s, 1); grad_up = ((g w) s) gate; 0 where a clamp held; out = act w; grad_weight = factor
//          times the sum of g act. Each step is rounded.

#include <cstdint>
#include <optional>
#include <utility>

#include "kernels/quant/parts/gated.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/norm/parts/norm_row.h"
#include "kernels/serving/swiglu/parts/swiglu_call.h"
#include "kernels/signature/case.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kThreadsAtOnce = 1024;  // of a multiprocessor, so 64 registers for a thread

using serving::kRowRun;
using serving::NormRow;
using serving::RowTile;

struct Spec {
  DType in, grad, out;  // of x, grad_out, and what is written
  serving::SwigluForm form;
  bool save_out;
  int16_t width, grad_width;  // columns per load of x and of grad_out
  int32_t hidden;
};

/// 128 threads share out the runs of 3072 columns evenly, 256 do not.
RowTile row_tile(int64_t hidden) {
  constexpr int64_t kLongRow = 8192;
  return serving::pick_row_tile(hidden, {.max_threads = hidden > kLongRow ? 256 : 128});
}

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const RowTile tile = row_tile(s.hidden);
  const int64_t stored = 16 / bytes(s.out) < kRowRun ? 16 / bytes(s.out) : kRowRun;
  Builder k("swiglu_bwd");
  auto positions = k.dim("positions");
  auto x = k.input("x", s.in, {positions, 2, s.hidden}, {.align = int64_t{bytes(s.in)} * s.width});
  auto grad_out = k.input("grad_out", s.grad, {positions, s.hidden},
                          {.align = int64_t{bytes(s.grad)} * s.grad_width});
  auto grad_x = k.output("grad_x", s.out, {positions, 2, s.hidden});
  std::optional<Ref> out, grad_weight;
  if (s.save_out) out = k.output("out", s.out, {positions, s.hidden});
  serving::SwigluRows rows(k, s.form, positions);
  const bool has_weights = rows.has_weights();
  if (has_weights) {
    grad_weight = k.output("grad_weight", DType::f32, {positions}, {.align = 4});
  }
  rows.launch(tile.threads, kThreadsAtOnce);
  const NormRow part(k, s.hidden, tile);
  rows.start();
  rows.each([&](const Value& position, const Value& valid) {
    auto weight = k.var(DType::f32, 1.0f, "weight");
    if (has_weights) k.if_(valid, [&] { weight = rows.weight(position); });
    NormRow::Lanes sums;
    if (has_weights) sums = part.lanes();
    for (int64_t step = 0; step < tile.steps; ++step) {
      part.in_row(step, [&](const Value& column) {
        auto dx = k.local(s.out, {kRowRun}, "dx"), dy = k.local(s.out, {kRowRun}, "dy");
        auto value = k.local(s.out, {kRowRun}, "value");
        k.if_else(
            valid,
            [&] {
              auto gate = k.local(s.in, {kRowRun}, "gate"), up = k.local(s.in, {kRowRun}, "up");
              auto grad = k.local(s.grad, {kRowRun}, "grad");
              part.load(x(position, 0), column, gate, s.width);
              part.load(x(position, 1), column, up, s.width);
              part.load(grad_out(position), column, grad, s.grad_width);
              auto acts = k.local(DType::f32, {kRowRun}, "acts");
              k.vectorized(kRowRun, [&](Value i) {
                auto g = k.let("g", f32(grad(i)));
                const GatedGradient gradient =
                    gated_gradient(k, {f32(gate(i)), f32(up(i))}, g, weight, rows.clamp());
                auto act = k.let("act", gradient.activation);
                dx(i) = cast(s.out, gradient.gate);
                dy(i) = cast(s.out, gradient.up);
                if (out) value(i) = cast(s.out, has_weights ? act * weight : act);
                if (has_weights) acts(i) = act;
              });
              if (has_weights) {
                part.add(sums, step, [&](const Value& i) {
                  return std::pair<Value, Value>(f32(grad(i)), acts(i));
                });
              }
            },
            [&] {
              k.unrolled(kRowRun, [&](Value i) {
                for (const Ref& one : {dx, dy, value}) one(i) = cast(s.out, 0.0f);
              });
            });
        part.store(dx, grad_x(position, 0), column, stored);
        part.store(dy, grad_x(position, 1), column, stored);
        if (out) part.store(value, (*out)(position), column, stored);
      });
    }
    if (!has_weights) return;
    const Value sum = part.total(sums);
    k.if_(part.thread() == 0,
          [&] { (*grad_weight)(position).unchecked() = select(valid, rows.scaled(sum), 0.0f); });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  Spec s{};
  s.in = c.dtype("x");
  s.grad = c.dtype("grad_out");
  s.out = c.dtype("out_dtype");
  s.form = serving::swiglu_form(c);
  s.save_out = c.flag("save_out");
  s.hidden = c.i32("H");
  Args args;
  args.tensors.push_back({"x", reshaped(c.given("x"), {c["P"], 2, s.hidden})});
  args.tensors.push_back({"grad_x", reshaped(c.given("grad_x"), {c["P"], 2, s.hidden})});
  s.width = static_cast<int16_t>(common_vector(args.tensors[0].view, 16 / bytes(s.in)));
  s.grad_width = static_cast<int16_t>(common_vector(c.given("grad_out"), 16 / bytes(s.grad)));
  const int64_t warps = row_tile(s.hidden).threads / 32;
  args.scalars = serving::swiglu_scalars(c, serving::swiglu_rows_per_block(c["P"], warps));
  go.add(build, s, args);
}

}  // namespace

const Op swiglu_bwd_op{.name = "swiglu_bwd",
                       .family = "serving",
                       .purpose = "gradients of the gated activation of rows, and of their weights",
                       .signature = R"(
      x                bf16/f32 [P, 2H]    # gate, then up
      grad_out         bf16/f32 [P, H]
      psum?            i32 [E]             # the ends of the experts' rows; other rows are padding
      topk_weights?    f32 [P]
      -> grad_x        out_dtype [P, 2H] align 16
      -> out?          out_dtype [P, H] align 16    iff save_out
      -> grad_weight?  f32 [P]                      iff topk_weights
      param  out_dtype {bf16, f32}
      param  save_out bool = false
      param  routed_scaling_factor float = none
      param  swiglu_clamp_value float = none
      param  alignment int = 128           # of the rows of an expert
      need   H >= 1 on x "argument 'x' has no columns"
      limit  H % 8 = 0 on x "rows of so many columns are not supported"
      limit  H <= 16384 on x "rows this long are not supported"
      need   1 <= alignment <= 2147483647
      need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
    )",
                       .launches = launches,
                       .check = serving::require_swiglu,
                       .check_values = serving::require_expert_rows,
                       .examples = R"(
      P=37 H=1024 x=bf16 grad_out=bf16 out_dtype=bf16
      P=9 H=520 x=f32 grad_out=bf16 out_dtype=bf16 topk_weights=given routed_scaling_factor=2.5 save_out=true
      P=300 E=3 H=256 x=bf16 grad_out=f32 out_dtype=f32 psum=given swiglu_clamp_value=0.5 topk_weights=given
      P=2100 E=3 H=256 x=bf16 grad_out=bf16 out_dtype=bf16 psum=given)",
                       .bench = R"(
      P=8 H=3072 x=bf16 grad_out=bf16 out_dtype=bf16; P=1024 H=3072 x=bf16 grad_out=bf16 out_dtype=bf16 topk_weights=given
      P=49152 H=3072 x=bf16 grad_out=bf16 out_dtype=bf16 topk_weights=given
      P=49152 E=256 H=3072 x=bf16 grad_out=bf16 out_dtype=bf16 psum=given topk_weights=given swiglu_clamp_value=10)",
                       .values = {{"psum", [](const Case& c, int64_t e) {
                                     const int64_t share = c["P"] / c["E"] / 128 * 128;
                                     return share == 0 ? c["P"] : share * (e + 1) - 1;
                                   }}}};

}  // namespace tessera::kernels
