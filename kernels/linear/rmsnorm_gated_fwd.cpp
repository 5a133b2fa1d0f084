// rmsnorm_gated_fwd: root mean square norm of rows, times an activated gate: the end of a linear attention.
//
// Shapes   x, z, out [tokens, width], weight [width]
// Dtypes   x, z, out bf16|f16|f32, weight bf16|f32
// Method   a row in whole warps, short rows several to a block (norm_row.h). Rows are read and written once; the bound is
//          bytes / copy bandwidth.
// Maths    s = sum of squares in the order of norm_row.h; r = 1 / sqrt(s / width + eps), IEEE; out = round(((x * r) *
//          weight) * act(z)); silu(z) = z / (1 + exp(-z)), sigmoid(z) = 1 / (1 + exp(-z)), each step rounded

#include <algorithm>
#include <numeric>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/norm/parts/norm_row.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using serving::kRowRun;

struct Spec {
  DType dtype, weight_dtype;
  bool has_sigmoid;
  int8_t width, weight_width, out_width;  // columns of an access
  int16_t unused;
  int32_t columns;
};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const serving::RowTile tile = serving::pick_row_tile(s.columns, {.shares_blocks = true});
  Builder k("rmsnorm_gated_fwd");
  auto tokens = k.dim("tokens");
  const auto rows_of = [&](const std::string& name) {
    auto stride = k.stride(name + "_stride", {.multiple_of = s.width});
    return k.input(name, s.dtype, {tokens, s.columns},
                   {.strides = {stride, 1}, .align = int64_t{bytes(s.dtype)} * s.width});
  };
  auto x = rows_of("x"), z = rows_of("z");
  auto weight = k.input("weight", s.weight_dtype, {s.columns},
                        {.align = int64_t{bytes(s.weight_dtype)} * s.weight_width});
  auto out = k.output("out", s.dtype, {tokens, s.columns},
                      {.align = int64_t{bytes(s.dtype)} * s.out_width});
  auto eps = k.scalar("eps", DType::f32);
  auto at = k.launch({ceil_div(tokens, tile.rows)}, {.threads = tile.block_threads()});
  k.let_next_kernel_start();
  const serving::NormRow row(k, s.columns, tile);
  k.wait_for_previous_kernel();
  auto token = k.let("token", at.x * tile.rows + row.row());
  auto valid = k.let("valid", token < tokens);
  auto values = row.local(s.dtype, "values"), gates = row.local(s.dtype, "gates");
  auto w = row.local(s.weight_dtype, "w");
  row.clear(values);
  for (int64_t step = 0; step < tile.steps; ++step) {
    row.in_row(step, [&](const Value& column) {
      row.load(weight, column, w(step), s.weight_width);
      k.if_(valid, [&] {
        row.load(x(token), column, values(step), s.width);
        row.load(z(token), column, gates(step), s.width);
      });
    });
  }
  const Value squares = row.sum([&](int64_t step, const Value& i) {
    auto value = f32(values(step, i));
    return std::pair(value, value);
  });
  auto r = k.let("r", 1.0f / sqrt(squares / static_cast<float>(s.columns) + eps));
  for (int64_t step = 0; step < tile.steps; ++step) {
    row.in_row(step, [&](const Value& column) {
      k.if_(valid, [&] {
        k.unrolled(kRowRun, [&](Value i) {
          auto gate = k.let("gate", f32(gates(step, i)));
          auto factor = s.has_sigmoid ? 1.0f / (1.0f + exp(-gate)) : silu(gate);
          values(step, i) = cast(s.dtype, f32(values(step, i)) * r * f32(w(step, i)) * factor);
        });
        row.store(values(step), out(token), column, s.out_width);
      });
    });
  }
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  const TensorView x = c.tensor("x"), z = c.tensor("z"), weight = c.given("weight");
  const int64_t most = std::min<int64_t>(kRowRun, 16 / bytes(x.dtype));
  Spec s{};
  s.dtype = x.dtype, s.weight_dtype = weight.dtype;
  s.has_sigmoid = c.word("activation") == "sigmoid";
  s.columns = c.i32("d");
  s.width = static_cast<int8_t>(std::gcd(common_vector(x, most), common_vector(z, most)));
  s.weight_width = static_cast<int8_t>(
      common_vector(weight, std::min<int64_t>(kRowRun, 16 / bytes(weight.dtype))));
  s.out_width = static_cast<int8_t>(common_vector(c.tensor("out"), most));
  go.add(build, s);
}

}  // namespace

const Op rmsnorm_gated_fwd_op{.name = "rmsnorm_gated_fwd",
                              .family = "linear",
                              .purpose = "root mean square norm of rows, times an activated gate",
                              .signature = R"(
      x        bf16/f16/f32 [T.., d] rows
      z        as x [T.., d] rows          # the gate
      weight   f32/bf16 [d]
      -> out   as x [T.., d]
      param  eps float = 1e-6
      param  activation {silu, sigmoid} = silu
      need   d >= 1 on x "argument 'x' has no columns"
      need   d % 8 = 0 on x "a row has the wrong number of columns"
      limit  d <= 8192 on x "rows this long are not supported"
    )",
                              .launches = launches,
                              .examples = R"(
      T=37 d=128 x=bf16 weight=f32; T=9 d=64 x=f16 weight=bf16 activation=sigmoid eps=1e-5; T=5 d=256 x=f32 weight=f32
      T=3 d=1032 x=bf16 weight=bf16 z.strides=2064,1)",
                              .bench = R"(
      T=1048576 d=128 x=bf16 weight=f32; T=8192 d=128 x=bf16 weight=f32; T=262144 d=256 x=bf16 weight=bf16)"};

}  // namespace tessera::kernels
