#pragma once
// The three layouts of a tensor of scales as callers see it: one scale per block of a matrix.
//
//   row_major      f32 [rows, cols]            strides (cols, 1)
//   col_major_tma  f32 [rows, cols]            strides (1, rows4), rows4 = rows rounded up to 4
//   packed_ue8m0   i32 [rows, ceil(cols / 4)]  strides (1, rows4); exponents of powers of two, the
//                                              first of four blocks in the low byte
//
// Padding rows and unused bytes belong to the tensor and are 0.

#include "kernels/call_types.h"
#include "kernels/checks/arg_check.h"
#include "kernels/op_arguments.h"

namespace tessera::kernels {

/// Parses the enum parameter `name`.
SfLayout sf_layout_of(const Params& params, const std::string& name);

/// The number of blocks of size `block` that cover `extent`.
int64_t num_blocks(int64_t extent, int64_t block);

/// Shape, strides and storage of the `rows` x `cols` scales that an op writes.
OutputInfo scale_output(const std::string& name, SfLayout layout, int64_t rows, int64_t cols);
/// Checks an output against scale_output(). `rows` and `cols` are symbols bound before.
void check_scale_output(ArgCheck& check, const std::string& name, const Tensors& tensors,
                        SfLayout layout, const std::string& rows, const std::string& cols);
/// Checks an input likewise. Its rows (row_major) or columns may be further apart.
void check_scale_input(ArgCheck& check, const std::string& name, const Tensors& tensors,
                       SfLayout layout, const std::string& rows, const std::string& cols);

/// Views the memory as ScaleWriter declares it, padding included.
TensorView written_scales(const TensorView& scales, SfLayout layout, int64_t rows, int64_t cols);
/// Views the memory as ScaleReader declares it.
TensorView read_scales(const TensorView& scales, SfLayout layout);

}  // namespace tessera::kernels
