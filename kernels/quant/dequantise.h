#pragma once
// What cast_back and per_token_cast_back share: codes times one scale per block of the matrix.

#include "kernels/quant/scale_layout.h"

namespace tessera::kernels {

/// A checked call.
struct Dequantise {
  int64_t block_rows = 1, block_cols = 0;
  SfLayout sf_layout = SfLayout::row_major;
  DType out = DType::bf16;  // or f32
};

/// Everything that generated code depends on.
struct DequantiseSpec {
  DType in, out;
  SfLayout sf_layout;
  uint8_t align;  // bytes of x, at most 16
  int32_t hidden, block_rows, block_cols;
  int32_t sf_vector;  // scales that one access may read
};
DequantiseSpec spec_of(const TensorView& x, const TensorView& x_sf, const Dequantise& call);

/// out[r, c] = x[r, c] * x_sf[r / block_rows, c / block_cols], for the op of that name.
ir::Kernel build_dequantise(const std::string& op, const DequantiseSpec& spec);

/// Checks x, x_sf, out_dtype and x_sf_layout; binds T, H, R and C, the rows and columns of blocks.
Dequantise check_dequantise(ArgCheck& check, const Tensors& tensors, const Params& params,
                            int64_t block_rows, int64_t block_cols);
/// The output `out`.
std::vector<OutputInfo> dequantise_outputs(const ArgCheck& check, const Dequantise& call);
/// Checks the output too and launches.
void run_dequantise(const std::string& op, ArgCheck& check, const Dequantise& call,
                    const Tensors& tensors, Stream stream);
/// The kernels of a checked call.
std::vector<ir::Kernel> dequantise_kernels(const std::string& op, const Dequantise& call,
                                           const Tensors& tensors);

/// The rows of the op table that both have: tensors, and the parameters after the block.
std::vector<TensorInfo> dequantise_tensors(const std::string& x_sf_blocks);
std::vector<ParamInfo> dequantise_params(const ParamInfo& block);
/// Inputs, bytes and label of an example.
BenchCase dequantise_case(int64_t tokens, int64_t hidden, DType x, DType out, const Dims& block,
                          SfLayout layout);

}  // namespace tessera::kernels
