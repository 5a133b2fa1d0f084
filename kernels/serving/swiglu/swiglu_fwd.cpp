// swiglu_fwd: gated activation of rows, weighted.
//
// Shapes   x [positions, 2, hidden] (gate, up), out [positions, hidden], psum [experts], topk_weights
//          [positions], clamped_count [4]
// Dtypes   x and out bf16|f32
// Method   the walk of swiglu_rows.h, with 8 columns of both halves per thread and step. Rows of padding are
//          not read. Clamped values are counted in registers and added by at most four atomics per block. The
//          bound is bytes / copy bandwidth.
// Maths    v = gate / (1 + exp(-gate)) * up * (weight * factor) in f32, every step rounded

#include <cstdint>
#include <optional>

#include "kernels/quant/parts/clamp_count.h"
#include "kernels/quant/parts/gated.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/swiglu/parts/swiglu_call.h"
#include "kernels/signature/case.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

struct Spec {
  DType in, out;
  serving::SwigluForm form;
  bool has_count;
  int8_t width;  // columns per load
  int32_t hidden;
};

constexpr int64_t kRun = 8, kMaxThreads = 256;

struct Tile {
  int64_t threads, steps;
};

/// Threads that divide the runs of a row about evenly.
Tile pick_tile(int64_t hidden) {
  const int64_t runs = hidden / kRun, steps = (runs + kMaxThreads - 1) / kMaxThreads;
  const int64_t threads = (runs + steps - 1) / steps;
  return {(threads + 31) / 32 * 32, steps};
}

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const Tile tile = pick_tile(s.hidden);
  const int64_t warps = tile.threads / 32;
  const int64_t stored = std::min<int64_t>(kRun, 16 / bytes(s.out));
  Builder k("swiglu_fwd");
  auto positions = k.dim("positions");
  auto x = k.input("x", s.in, {positions, 2, s.hidden}, {.align = int64_t{bytes(s.in)} * s.width});
  auto out = k.output("out", s.out, {positions, s.hidden});
  serving::SwigluRows rows(k, s.form, positions);
  std::optional<ClampCount> count;
  if (s.has_count) count.emplace(k, 4);
  rows.launch(tile.threads);
  rows.start();
  if (count) count->start();
  auto valid_rows = k.var(DType::i32, 0, "valid_rows");
  rows.each([&](const Value& position, const Value& valid) {
    if (count) valid_rows += select(valid, 1, 0);
    for (int64_t step = 0; step < tile.steps; ++step) {
      auto column = k.let("column", (k.thread() + step * tile.threads) * kRun);
      k.if_(column < s.hidden, [&] {
        auto values = k.local(s.out, {kRun}, "values");
        k.if_else(
            valid,
            [&] {
              auto gate = k.local(s.in, {kRun}, "gate"), up = k.local(s.in, {kRun}, "up");
              const Ref halves[] = {gate, up};
              for (int64_t half = 0; half < 2; ++half) {
                k.unrolled(kRun / s.width, [&](Value piece) {
                  k.vectorized(s.width, [&](Value i) {
                    auto j = piece * s.width + i;
                    halves[half](j) = x(position, half, column + j).unchecked();
                  });
                });
              }
              std::optional<Value> weight;
              if (rows.has_weights()) weight = k.let("weight", rows.weight(position));
              k.vectorized(kRun, [&](Value i) {
                GatedPair pair{k.let("gate_value", f32(gate(i))), k.let("up_value", f32(up(i)))};
                if (count) count->add(pair, *rows.clamp());
                auto value = (rows.clamp() ? pair.clamped(*rows.clamp()) : pair).activated();
                values(i) = cast(s.out, weight ? value * *weight : value);
              });
            },
            [&] { k.unrolled(kRun, [&](Value i) { values(i) = cast(s.out, 0.0f); }); });
        k.unrolled(kRun / stored, [&](Value piece) {
          k.vectorized(stored, [&](Value i) {
            auto j = piece * stored + i;
            out(position, column + j).unchecked() = values(j);
          });
        });
      });
    }
  });
  if (count) {
    count->finish(warps);
    k.if_(k.thread() == 0 && valid_rows > 0,
          [&] { k.atomic_add(count->total(3), i64(valid_rows) * int64_t{s.hidden}); });
  }
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  if (c["P"] == 0) return;  // clamped_count does not change
  Spec s{};
  s.in = c.dtype("x");
  s.out = c.dtype("out_dtype");
  s.form = serving::swiglu_form(c);
  s.has_count = c.has("clamped_count");
  s.hidden = c.i32("H");
  Args args;
  args.tensors.push_back({"x", reshaped(c.given("x"), {c["P"], 2, s.hidden})});
  s.width = static_cast<int8_t>(common_vector(args.tensors[0].view, 16 / bytes(s.in)));
  const int64_t warps = pick_tile(s.hidden).threads / 32;
  args.scalars = serving::swiglu_scalars(c, serving::swiglu_rows_per_block(c["P"], warps));
  go.add(build, s, args);
}

}  // namespace

const Op swiglu_fwd_op{.name = "swiglu_fwd",
                       .family = "serving",
                       .purpose = "gated activation of rows, weighted",
                       .signature = R"(
      x               bf16/f32 [P, 2H]     # gate, then up
      psum?           i32 [E]              # the ends of the experts' rows; other rows are padding
      topk_weights?   f32 [P]
      -> out          out_dtype [P, H] align 16
      -> inout clamped_count?  i64 [4]     # gates above, ups above, ups below, all values
      param  out_dtype {bf16, f32}
      param  routed_scaling_factor float = none
      param  swiglu_clamp_value float = none
      param  alignment int = 128           # of the rows of an expert
      need   H >= 1 on x "argument 'x' has no columns"
      limit  H % 8 = 0 on x "rows of so many columns are not supported"
      limit  H <= 16384 on x "rows this long are not supported"
      need   1 <= alignment <= 2147483647
      need   swiglu_clamp_value != none if clamped_count on clamped_count
      |      "'clamped_count' needs 'swiglu_clamp_value'"
      need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
    )",
                       .launches = launches,
                       .check = serving::require_swiglu,
                       .check_values = serving::require_expert_rows,
                       .examples = R"(
      P=37 H=1024 x=bf16 out_dtype=bf16; P=9 H=520 x=f32 out_dtype=bf16 topk_weights=given routed_scaling_factor=2.5
      P=300 E=3 H=256 x=bf16 out_dtype=f32 psum=given swiglu_clamp_value=0.5 clamped_count=given topk_weights=given
      P=2100 E=3 H=256 x=bf16 out_dtype=bf16 psum=given)",
                       .bench = R"(
      P=8 H=3072 x=bf16 out_dtype=bf16; P=1024 H=3072 x=bf16 out_dtype=bf16 topk_weights=given
      P=49152 H=3072 x=bf16 out_dtype=bf16 topk_weights=given
      P=49152 E=256 H=3072 x=bf16 out_dtype=bf16 psum=given topk_weights=given swiglu_clamp_value=10)",
                       // experts of equal shares, with a row of padding at the end of each
                       .values = {{"psum", [](const Case& c, int64_t e) {
                                     const int64_t share = c["P"] / c["E"] / 128 * 128;
                                     return share == 0 ? c["P"] : share * (e + 1) - 1;
                                   }}}};

}  // namespace tessera::kernels
