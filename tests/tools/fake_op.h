#pragma once
// An op with every kind of tensor, for tests of the tools that need no kernel: out[t] = x[t] + bias
// on bytes, counts into `total`, and a scale tensor in the layout that a parameter names.

#include "kernels/op.h"

namespace tessera::tests {

/// Tensors: x u8 [T,H] rows; bias? u8 [1]; inout total? i64 [1]; out u8 [T,H]; out_sf f32 [T,1] in
/// sf_layout. Parameters: amount int 0..9, sf_layout = row_major, round_sf bool = false.
kernels::OpInfo fake_op();

}  // namespace tessera::tests
