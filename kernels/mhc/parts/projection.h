#pragma once
// The projection of the residual onto the rows of `fn` and its sum of squares, split along the
// columns. norm_fn_fwd and pre_big_fuse share it, so that both get the same bits.

#include <vector>

#include "kernels/mhc/parts/projection_parts.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::mhc {

/// The inputs that determine the result of a call.
ProjectionShape projection_shape(const Call& c);
/// Elements of its workspace; a function for signatures.
int64_t projection_elements(const Call& c);

/// Adds the kernel that writes the partial results into the workspace; none without columns.
/// `is_last_reader`: no later kernel reads the residual again soon.
void add_projection(const Call& c, Launches& go, bool is_last_reader);
/// The partial results as inputs of the next kernel; none without columns.
std::vector<Args::Tensor> projected_parts(const Call& c);

}  // namespace tessera::kernels::mhc
