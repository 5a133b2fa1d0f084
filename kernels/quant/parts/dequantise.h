#pragma once
// cast_back and per_token_cast_back: codes times one scale per block of the matrix.

#include "kernels/signature/launches.h"
#include "kernels/signature/scale_layout.h"

namespace tessera::kernels {

/// Everything that generated code depends on.
struct DequantiseSpec {
  DType in, out;
  SfLayout sf_layout;
  uint8_t align;  // bytes of x, at most 16
  int32_t hidden, block_rows, block_cols;
  int32_t sf_vector;  // scales per access, at most
};

/// Builds out[r, c] = x[r, c] * x_sf[r / block_rows, c / block_cols] for the op `op`.
ir::Kernel build_dequantise(const std::string& op, const DequantiseSpec& spec);
/// Adds the kernel of a call with blocks of `br` x `bc`, out_dtype and x_sf_layout.
void add_dequantise(const Call& c, Launches& go);

}  // namespace tessera::kernels
