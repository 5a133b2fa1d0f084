// per_token_cast_back: e4m3 or e2m1 codes to bf16 or f32, with one scale per group of columns.
//
// Shapes   x, out [tokens, hidden], x_sf [tokens, ceil(hidden / group)]
// Dtypes   x e4m3|e2m1 (two per byte), x_sf f32 or exponents of powers of two, out bf16|f32
// Method   cast_back with blocks of one row
// Maths    out = round(code * scale), one f32 multiply
// Tuned    H200; the builder is in dequantise.cpp

#include "kernels/quant/per_token_cast_back.h"

#include <algorithm>

#include "kernels/op_call.h"
#include "kernels/quant/dequantise.h"

namespace tessera::kernels {
namespace {

// 3. Host function
Dequantise check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  const int64_t group = std::get<int64_t>(params.at("num_per_channels"));
  check.require(group >= 1, "num_per_channels", "parameter 'num_per_channels' is out of range",
                "1..H", std::to_string(group));
  const Dequantise call = check_dequantise(check, tensors, params, 1, group);
  check.require(group <= std::max<int64_t>(check["H"], 1), "num_per_channels",
                "parameter 'num_per_channels' is out of range",
                "1..H = " + std::to_string(check["H"]), std::to_string(group));
  return call;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("per_token_cast_back");
  const Dequantise call = check_input(check, inputs, params);
  return dequantise_outputs(check, call);
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("per_token_cast_back");
  const Dequantise call = check_input(check, tensors, params);
  run_dequantise("per_token_cast_back", check, call, tensors, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("per_token_cast_back");
  const Dequantise call = check_input(check, tensors, params);
  return dequantise_kernels("per_token_cast_back", call, tensors);
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t hidden, DType x, DType out, int64_t group,
                     SfLayout layout = SfLayout::row_major) {
  BenchCase c = dequantise_case(tokens, hidden, x, out, {1, group}, layout);
  c.params["num_per_channels"] = group;
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "per_token_cast_back";
  op.family = "quant";
  op.purpose = "8-bit or 4-bit floats with one scale per group of columns back to bf16 or f32";
  op.tensors = dequantise_tensors("1,num_per_channels");
  op.params = dequantise_params(count("num_per_channels", "1..H"));
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  constexpr DType e4m3 = DType::e4m3, e2m1 = DType::e2m1, bf16 = DType::bf16, f32 = DType::f32;
  using enum SfLayout;
  op.examples = {bench_case(13, 576, e4m3, bf16, 128),
                 bench_case(37, 7168, e4m3, f32, 128, packed_ue8m0),
                 bench_case(7, 2048, e4m3, bf16, 32, col_major_tma),
                 bench_case(3, 576, e4m3, f32, 576), bench_case(9, 640, e2m1, f32, 128)};
  op.bench = {bench_case(8001, 7168, e4m3, f32, 128), bench_case(8001, 7168, e4m3, f32, 7168),
              bench_case(8001, 7168, e2m1, f32, 128), bench_case(8001, 7168, e2m1, f32, 7168),
              bench_case(8001, 7168, e4m3, bf16, 128)};
  return op;
}

}  // namespace

void per_token_cast_back(const TensorView& x, const TensorView& x_sf, const TensorView& out,
                         const PerTokenCastBackOptions& options, Stream stream) {
  call_op(per_token_cast_back_op(), {{"x", x}, {"x_sf", x_sf}, {"out", out}},
          {{"num_per_channels", options.num_per_channels},
           {"out_dtype", out.dtype},
           {"x_sf_layout", options.x_sf_layout}},
          stream);
}

const OpInfo& per_token_cast_back_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
