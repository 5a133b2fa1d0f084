// norm_bwd: gradients of norm_fwd: of its rows, and of its weight.
//
// Shapes   grad_out, x, grad_residual_out, grad_x [tokens, hidden], weight, grad_weight [hidden], rstd
//          [tokens]
// Dtypes   bf16|f32, rstd f32, grad_weight f32|bf16
// Method   block z of at most 264 has tokens c z .. c z + c - 1, c = ceil(tokens / 264), one after
//          another, which come through shared memory up to three ahead. It sums each row's product, reads the row again,
//          writes its gradient, and adds to the gradients of the weight in registers, which it writes as
//          partial z. A second kernel adds the partials in ascending order: no atomics, and 264 is the same on every
//          GPU. The bound is bytes / copy bandwidth.
// Measured one H200, bf16, 8001 rows of 7168: 98 us, 87 % of copy, with grad_residual_out 125, 91 %; of 4096 61, of 2048 34.
// Lost     a row loaded when the last one has left its registers, sums in shared memory 100, 125, 70 and 50; rows of the ring
//          held in registers 128 and 188, 144 bytes spilt; three stages of 7168 102; bulk copies 102 and 128, 64 and 38; 128
//          threads 107; loads that leave no trace in L1 101 and 128, that leave L2 first 105 and 131.
// Maths    xh = x r; q = (grad_out out_scale) w; d = sum of xh q in the order of norm_row.h; grad_x =
//          (q - xh (d / hidden)) r, each step rounded, + grad_residual_out; grad_weight = sums of
//          xh (grad_out out_scale) by fma

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/norm/parts/norm_row.h"
#include "kernels/serving/norm/parts/partial_sum.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/scale_layout.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using serving::kRowRun;
using serving::NormRow;
using serving::RowTile;

struct Spec {
  DType dtype, weight_dtype;  // of the rows, of grad_weight
  bool has_weight, has_residual;
  bool has_scale;              // out_scale is not 1
  int8_t width, weight_width;  // columns per load of the rows and of the weight
  uint8_t unused = 0;
  int32_t hidden;
};

/// Rows of tokens that are in shared memory at once, or 0: long rows are loaded where they are needed.
int ring_stages(const Spec& s) {
  constexpr int64_t kEnough = 64 * 1024, kMost = 96 * 1024, kMaxStages = 4;  // bytes of a block
  const int64_t stage = int64_t{s.hidden} * bytes(s.dtype) * (s.has_residual ? 3 : 2);
  if (2 * stage > kMost) return 0;
  return static_cast<int>(std::clamp<int64_t>(kEnough / stage, 2, kMaxStages));
}

ir::Kernel build_rows(const Spec& s) {
  using namespace dsl;
  const RowTile tile = serving::pick_row_tile(s.hidden, {});
  const int stages = ring_stages(s);
  Builder k("norm_bwd_rows");
  auto tokens = k.dim("tokens");
  const auto rows_of = [&](const std::string& name) {
    auto stride = k.stride(name + "_stride", {.multiple_of = s.width});
    return k.input(name, s.dtype, {tokens, s.hidden},
                   {.strides = {stride, 1}, .align = int64_t{bytes(s.dtype)} * s.width});
  };
  std::vector<Ref> rows = {rows_of("grad_out"), rows_of("x")};
  std::optional<Ref> weight, partials;
  if (s.has_residual) rows.push_back(rows_of("grad_residual_out"));
  if (s.has_weight) {
    weight =
        k.input("weight", s.dtype, {s.hidden}, {.align = int64_t{bytes(s.dtype)} * s.weight_width});
    partials = k.output("partials", DType::f32, {k.dim("num_partials"), s.hidden});
  }
  auto rstd = k.input("rstd", DType::f32, {tokens}, {.align = 4});
  auto grad_x = k.output("grad_x", s.dtype, {tokens, s.hidden});
  const Value out_scale = s.has_scale ? k.scalar("out_scale", DType::f32) : Value();
  auto tokens_per_block = k.scalar("tokens_per_block", DType::i32);
  auto at = k.launch({(tokens + tokens_per_block - 1) / tokens_per_block},
                     {.threads = tile.block_threads(),
                      .min_blocks_per_sm = s.dtype == DType::bf16 && tile.steps <= 4 ? 2 : 1});
  // NOTE: without a bound ptxas stops at 128 registers and spills 8 bytes of f32 rows on sm_80.
  k.let_next_kernel_start();
  const NormRow row(k, s.hidden, tile);
  const int64_t most = std::min<int64_t>(16 / bytes(s.dtype), kRowRun);  // columns of an access
  std::optional<Ref> w, sums;                                            // the weight, its gradient
  if (weight) {
    w = row.local(s.dtype, "w");
    sums = row.local(DType::f32, "sums");
    row.clear(*sums);
  }
  std::vector<Ref> ring;
  for (size_t i = 0; i < rows.size() && stages > 0; ++i) {
    ring.push_back(k.shared(s.dtype, {1, s.hidden}, "row_in_ring"));
  }
  k.wait_for_previous_kernel();
  auto first = k.let("first", at.x * tokens_per_block);
  auto last = k.let("last", min(first + tokens_per_block, tokens));
  k.assume(first >= 0 && first < tokens);
  if (weight) row.load_all(*weight, *w, s.weight_width);
  const auto of_token = [&](const Value& token) {
    const auto load = [&](size_t which, int64_t step, const Ref& run) {
      const Ref from = stages > 0 ? Ref(ring[which](0)) : Ref(rows[which](token));
      row.load_step(from, step, run, stages > 0 ? most : s.width);
    };
    auto r = k.let("r", rstd(token));
    const auto scaled = [&](const Ref& grad, const Value& i) {
      return s.has_scale ? f32(grad(i)) * out_scale : f32(grad(i));
    };
    const auto weighted = [&](const Ref& grad, int64_t step, const Value& i) {
      return weight ? scaled(grad, i) * f32((*w)(step, i)) : scaled(grad, i);
    };
    const auto grads = row.local(s.dtype, "grads"), values = row.local(s.dtype, "values");
    for (int64_t step = 0; step < tile.steps; ++step) {
      load(0, step, grads(step));
      load(1, step, values(step));
    }
    const Value d = row.sum([&](int64_t step, const Value& i) {
      return std::pair<Value, Value>(f32(values(step, i)) * r, weighted(grads(step), step, i));
    });
    auto mean = k.let("mean", d / static_cast<float>(s.hidden));
    for (int64_t step = 0; step < tile.steps; ++step) {
      row.in_row(step, [&](const Value& column) {
        std::vector<Ref> runs;  // loaded again: the registers hold the sums of columns
        for (size_t i = 0; i < rows.size(); ++i) {
          runs.push_back(k.local(s.dtype, {kRowRun}, "run"));
          load(i, step, runs[i]);
        }
        auto made = k.local(s.dtype, {kRowRun}, "made");
        k.vectorized(kRowRun, [&](Value i) {
          auto xh = k.let("xh", f32(runs[1](i)) * r);
          Value grad = (weighted(runs[0], step, i) - xh * mean) * r;
          if (s.has_residual) grad = grad + f32(runs[2](i));
          made(i) = cast(s.dtype, grad);
          if (sums) (*sums)(step, i) = fma(xh, scaled(runs[0], i), (*sums)(step, i));
        });
        row.store(made, grad_x(token), column, most);
      });
    }
  };
  if (stages > 0) {
    k.pipelined(0, last - first, stages, [&](Value round) {
      auto token = k.let("token", first + round);
      for (size_t i = 0; i < rows.size(); ++i) {
        k.copy(rows[i].tile({token, 0}, {1, s.hidden}), ring[i]);
      }
      of_token(token);
    });
  } else {
    k.serial(first, last, of_token);
  }
  for (int64_t step = 0; step < tile.steps && partials; ++step) {
    row.in_row(
        step, [&](const Value& column) { row.store((*sums)(step), (*partials)(at.x), column, 4); });
  }
  return k.finish();
}

ir::Kernel build_sum(const serving::PartialSumSpec& s) {
  return serving::build_partial_sum("norm_bwd_sum", "grad_weight", s);
}

/// Blocks that have tokens.
int64_t partials_of(const Call& c) {
  return serving::num_partials(c["T"]);
}

void launches(const Call& c, Launches& go) {
  if (c["T"] == 0) return;  // grad_weight keeps its values
  const auto most = static_cast<int64_t>(16 / bytes(c.dtype("x")));
  const auto width_of = [&](const char* name) {
    return c.has(name) ? common_vector(c.tensor(name), most) : most;
  };
  Spec s{};
  s.dtype = c.dtype("x");
  s.has_weight = c.has("weight");
  s.has_residual = c.has("grad_residual_out");
  s.weight_dtype = s.has_weight ? c.dtype("grad_weight") : DType::f32;
  s.has_scale = c.number("out_scale") != 1;
  s.width = static_cast<int8_t>(
      std::gcd(std::gcd(width_of("x"), width_of("grad_out")), width_of("grad_residual_out")));
  s.weight_width = static_cast<int8_t>(width_of("weight"));
  s.hidden = c.i32("H");
  Args args{{}, {{"tokens_per_block", serving::rows_per_partial(c["T"])}}};
  if (s.has_weight) {
    const TensorView& workspace = c.given("workspace");
    args.tensors.push_back({"partials",
                            {workspace.data, DType::f32, Dims{partials_of(c), c["H"]},
                             Dims{c["H"], 1}, workspace.device}});
  }
  go.add(build_rows, s, args, "rows");
  if (s.has_weight) {
    go.add(build_sum, serving::PartialSumSpec{s.weight_dtype, true, true, 0, s.hidden}, args,
           "sum");
  }
}

}  // namespace

const Op norm_bwd_op{
    .name = "norm_bwd",
    .family = "serving",
    .purpose = "gradients of root mean square norm: of the rows and of the weight",
    .signature = R"(
      grad_out             bf16/f32 [T.., H] rows
      x                    as grad_out [T.., H] rows # what was normalised: residual_out of norm_fwd
      weight?              as x [H]
      rstd                 f32 [T..]
      grad_residual_out?   as x [T.., H] rows        # is added
      -> grad_x            as x [T.., H] align 16
      -> acc grad_weight?  f32/bf16 [H]              iff weight
      workspace?           f32 [elements()]          iff weight
      param  out_scale float = 1
      need   H >= 1 on x "argument 'x' has no columns"
      need   H % 16 = 0 on x "a row has the wrong number of columns"
      limit  H <= 16384 on x "rows this long are not supported"
    )",
    .launches = launches,
    .functions = {{"elements", [](const Call& c) { return partials_of(c) * c["H"]; }}},
    .examples = R"(
      T=37 H=2048 grad_out=bf16 weight=given; T=9 H=528 grad_out=f32 grad_residual_out=given
      T=300 H=256 grad_out=bf16 weight=given grad_residual_out=given grad_weight=bf16 out_scale=0.5
      T=5 H=7168 grad_out=f32 weight=given grad_weight=f32; T=4 H=2048 grad_out=bf16 weight=given x.strides=4096,1)",
    .bench = R"(
      T=1 H=7168 grad_out=bf16 weight=given grad_weight=f32; T=64 H=7168 grad_out=bf16 weight=given grad_weight=f32
      T=512 H=7168 grad_out=bf16 weight=given grad_weight=f32; T=8001 H=7168 grad_out=bf16 weight=given grad_weight=f32
      T=8001 H=4096 grad_out=bf16 weight=given grad_weight=f32; T=8001 H=2048 grad_out=bf16 weight=given grad_weight=f32
      T=8001 H=7168 grad_out=bf16 weight=given grad_weight=f32 grad_residual_out=given)"};

}  // namespace tessera::kernels
