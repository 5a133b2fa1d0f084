// norm_bwd: gradients of norm_fwd: of its rows, and of its weight.
//
// Shapes   grad_out, x, grad_residual_out, grad_x [tokens, hidden], weight, grad_weight [hidden], rstd
//          [tokens]
// Dtypes   bf16|f32, rstd f32, grad_weight f32|bf16
// Method   block z of at most 264 has tokens c z .. c z + c - 1, c = ceil(tokens / 264), one after
//          another. It sums each row's product, writes its gradient, and adds to the gradients of the
//          weight in shared memory, which it writes as partial z: in registers they would leave an SM one
//          block of the two that 264 are for. A row is loaded when the last one has left its registers. A second
//          kernel adds the partials in ascending order: no atomics, and 264 is the same on every GPU. The bound is
//          bytes / copy bandwidth.
// Measured one H200, bf16, 8001 rows of 7168: 100 us, 87 % of copy, with grad_residual_out 125, 91 %; of 4096 70, of 2048 50.
// Lost     sums in registers 133 and 151; weights loaded again for each row, 28 bytes spilt, 114 and 164; loads that leave no
//          trace in L1 101 and 128, that leave L2 first 105 and 131.
// Maths    xh = x r; q = (grad_out out_scale) w; d = sum of xh q in the order of norm_row.h; grad_x =
//          (q - xh (d / hidden)) r, each step rounded, + grad_residual_out; grad_weight = sums of
//          xh (grad_out out_scale) by fma

#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

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
  int16_t width, weight_width;  // columns per load of the rows and of the weight
  int32_t hidden;
};

/// The rows of a token in registers.
struct Held {
  dsl::Ref x, grad;
  std::optional<dsl::Ref> residual;
};

/// Sums of a thread's columns, in shared memory that it alone accesses. The 16-byte halves of the runs of
/// neighbouring threads are adjacent, free of bank conflicts.
class ColumnSums {
 public:
  ColumnSums(dsl::Builder& k, const RowTile& tile)
      : k_(k), sums_(k.shared(DType::f32, {tile.steps * 2, tile.threads, kHalf}, "column_sums")) {
    const auto zeros = k.local(DType::f32, {kRowRun}, "zeros");
    k.unrolled(kRowRun, [&](dsl::Value i) { zeros(i) = 0.0f; });
    for (int64_t step = 0; step < tile.steps; ++step) store(step, zeros);
  }

  dsl::Ref load(int64_t step) const {
    const auto run = k_.local(DType::f32, {kRowRun}, "sums");
    for (int64_t half = 0; half < 2; ++half) {
      k_.vectorized(kHalf, [&](dsl::Value i) {
        run(half * kHalf + i) = sums_(step * 2 + half, k_.thread(), i);
      });
    }
    return run;
  }
  void store(int64_t step, const dsl::Ref& run) const {
    for (int64_t half = 0; half < 2; ++half) {
      k_.vectorized(kHalf, [&](dsl::Value i) {
        sums_(step * 2 + half, k_.thread(), i) = run(half * kHalf + i);
      });
    }
  }

 private:
  static constexpr int64_t kHalf = kRowRun / 2;
  dsl::Builder& k_;
  dsl::Ref sums_;
};

ir::Kernel build_rows(const Spec& s) {
  using namespace dsl;
  const RowTile tile = serving::pick_row_tile(s.hidden, false);
  Builder k("norm_bwd_rows");
  auto tokens = k.dim("tokens");
  const auto rows_of = [&](const std::string& name) {
    auto stride = k.stride(name + "_stride", {.multiple_of = s.width});
    return k.input(name, s.dtype, {tokens, s.hidden},
                   {.strides = {stride, 1}, .align = int64_t{bytes(s.dtype)} * s.width});
  };
  auto grad_out = rows_of("grad_out"), x = rows_of("x");
  std::optional<Ref> residual, weight, partials;
  if (s.has_residual) residual = rows_of("grad_residual_out");
  if (s.has_weight) {
    weight =
        k.input("weight", s.dtype, {s.hidden}, {.align = int64_t{bytes(s.dtype)} * s.weight_width});
    partials = k.output("partials", DType::f32, {k.dim("num_partials"), s.hidden});
  }
  auto rstd = k.input("rstd", DType::f32, {tokens}, {.align = 4});
  auto grad_x = k.output("grad_x", s.dtype, {tokens, s.hidden});
  auto out_scale = k.scalar("out_scale", DType::f32);
  auto tokens_per_block = k.scalar("tokens_per_block", DType::i32);
  auto at = k.launch({(tokens + tokens_per_block - 1) / tokens_per_block},
                     {.threads = tile.block_threads(),
                      .min_blocks_per_sm = s.dtype == DType::bf16 && tile.steps <= 4 ? 2 : 0});
  k.let_next_kernel_start();
  const NormRow row(k, s.hidden, tile);
  const int64_t stored = 16 / bytes(s.dtype) < kRowRun ? 16 / bytes(s.dtype) : kRowRun;
  const auto each_step = [&](const std::function<void(int64_t, const Value&)>& body) {
    for (int64_t step = 0; step < tile.steps; ++step) {
      row.in_row(step, [&](const Value& column) { body(step, column); });
    }
  };
  Held held{row.local(s.dtype, "held_x"), row.local(s.dtype, "held_grad"), {}};
  if (residual) held.residual = row.local(s.dtype, "held_residual");
  auto w = row.local(s.dtype, "w");
  for (const Ref& part : {held.x, held.grad, w}) row.clear(part);
  std::optional<ColumnSums> sums;
  if (weight) sums.emplace(k, tile);
  const auto load = [&](const Value& token, int64_t step, const Value& column) {
    row.load(x(token), column, held.x(step), s.width);
    row.load(grad_out(token), column, held.grad(step), s.width);
    if (residual) row.load((*residual)(token), column, (*held.residual)(step), s.width);
  };
  k.wait_for_previous_kernel();
  auto first = k.let("first", at.x * tokens_per_block);
  auto last = k.let("last", min(first + tokens_per_block, tokens));
  k.assume(first >= 0 && first < tokens);
  each_step([&](int64_t step, const Value& column) {
    load(first, step, column);
    if (weight) row.load(*weight, column, w(step), s.weight_width);
  });
  k.serial(first, last, [&](Value token) {
    auto r = k.let("r", rstd(token));
    const auto normed = [&](int64_t step, const Value& i) { return f32(held.x(step, i)) * r; };
    const auto scaled = [&](int64_t step, const Value& i) {
      return f32(held.grad(step, i)) * out_scale;
    };
    const auto weighted = [&](int64_t step, const Value& i) {
      return weight ? scaled(step, i) * f32(w(step, i)) : scaled(step, i);
    };
    const Value d = row.sum([&](int64_t step, const Value& i) {
      return std::pair(normed(step, i), weighted(step, i));
    });
    auto mean = k.let("mean", d / static_cast<float>(s.hidden));
    auto next = k.let("next", token + 1);
    each_step([&](int64_t step, const Value& column) {
      auto grads = k.local(s.dtype, {kRowRun}, "grads");
      std::optional<Ref> added;
      if (sums) added = sums->load(step);
      k.unrolled(kRowRun, [&](Value i) {
        auto xh = k.let("xh", normed(step, i));
        Value grad = (weighted(step, i) - xh * mean) * r;
        if (residual) grad = grad + f32((*held.residual)(step, i));
        grads(i) = cast(s.dtype, grad);
        if (added) (*added)(i) = fma(xh, scaled(step, i), (*added)(i));
      });
      if (added) sums->store(step, *added);
      row.store(grads, grad_x(token), column, stored);
      k.if_(next < last, [&] { load(next, step, column); });
    });
  });
  if (partials) {
    each_step([&](int64_t step, const Value& column) {
      const Ref total = sums->load(step);
      row.store(total, (*partials)(at.x), column, 4);
    });
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
  s.width = static_cast<int16_t>(
      std::gcd(std::gcd(width_of("x"), width_of("grad_out")), width_of("grad_residual_out")));
  s.weight_width = static_cast<int16_t>(width_of("weight"));
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
