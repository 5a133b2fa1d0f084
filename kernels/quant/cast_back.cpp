// cast_back: e4m3 or e2m1 codes to bf16 or f32, with one scale per block of the matrix.
//
// Shapes   x, out [tokens, hidden], x_sf [ceil(tokens / block_rows), ceil(hidden / block_cols)]
// Dtypes   x e4m3|e2m1 (two per byte), x_sf f32 or exponents of powers of two, out bf16|f32
// Method   one pass: load codes, multiply each by the scale of its block, store.
//          The bound is bytes / copy bandwidth; scales come from the caches.
// Maths    out = round(code * scale), one f32 multiply
// Tuned    H200; the builder is in dequantise.cpp

#include "kernels/quant/cast_back.h"

#include "kernels/op_call.h"
#include "kernels/quant/dequantise.h"

namespace tessera::kernels {
namespace {

// 3. Host function
Dequantise check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  const Dims block = block_size_of(check, params, "x_block_size");
  return check_dequantise(check, tensors, params, block[0], block[1]);
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("cast_back");
  const Dequantise call = check_input(check, inputs, params);
  return dequantise_outputs(check, call);
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("cast_back");
  const Dequantise call = check_input(check, tensors, params);
  run_dequantise("cast_back", check, call, tensors, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("cast_back");
  const Dequantise call = check_input(check, tensors, params);
  return dequantise_kernels("cast_back", call, tensors);
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t hidden, DType x, DType out, const Dims& block,
                     SfLayout layout = SfLayout::row_major) {
  BenchCase c = dequantise_case(tokens, hidden, x, out, block, layout);
  c.params["x_block_size"] = std::vector<int64_t>{block[0], block[1]};
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "cast_back";
  op.family = "quant";
  op.purpose = "8-bit or 4-bit floats with one scale per block back to bf16 or f32";
  op.tensors = dequantise_tensors("x_block_size");
  op.params = dequantise_params(tuple("x_block_size"));
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  constexpr DType e4m3 = DType::e4m3, bf16 = DType::bf16, f32 = DType::f32;
  using enum SfLayout;
  op.examples = {bench_case(130, 576, e4m3, bf16, {128, 128}),
                 bench_case(130, 576, e4m3, bf16, {128, 1}),
                 bench_case(13, 2048, e4m3, f32, {1, 128}, packed_ue8m0),
                 bench_case(33, 576, e4m3, f32, {32, 32}, col_major_tma),
                 bench_case(9, 640, DType::e2m1, bf16, {1, 32}, packed_ue8m0)};
  op.bench = {bench_case(8001, 7168, e4m3, bf16, {128, 128}),
              bench_case(8001, 7168, e4m3, bf16, {128, 1})};
  return op;
}

}  // namespace

void cast_back(const TensorView& x, const TensorView& x_sf, const TensorView& out,
               const CastBackOptions& options, Stream stream) {
  call_op(cast_back_op(), {{"x", x}, {"x_sf", x_sf}, {"out", out}},
          {{"x_block_size", std::array{options.block_rows, options.block_cols}},
           {"out_dtype", out.dtype},
           {"x_sf_layout", options.x_sf_layout}},
          stream);
}

const OpInfo& cast_back_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
