#pragma once
// The projection of the residual onto the rows of `fn` and its sum of squares, cut along the
// columns. norm_fn_fwd and pre_big_fuse share it, so that both see the same bits.

#include <vector>

#include "kernels/mhc/projection_parts.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::mhc {

/// What the results of a call depend on.
ProjectionShape projection_shape(const Call& c);
/// Elements of its workspace, a function of signatures.
int64_t projection_elements(const Call& c);

/// Adds the kernel that writes the partial results into the workspace; none without columns.
/// `is_last_reader`: nobody reads the residual again soon.
void add_projection(const Call& c, Launches& go, bool is_last_reader);
/// The partial results as the kernel after it takes them; none without columns.
std::vector<More::Tensor> projected_parts(const Call& c);

}  // namespace tessera::kernels::mhc
