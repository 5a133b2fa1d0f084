#pragma once
// The projection of the residual onto the rows of `fn` and its sum of squares, cut along the
// columns. norm_fn_fwd and pre_big_fuse share it, so that both see the same bits.

#include "dsl/ir/tile.h"
#include "kernels/mhc/projection_parts.h"

namespace tessera::kernels::mhc {

/// The tensors of the op: residual [tokens.., streams, hidden], workspace [projection_workspace()].
/// An absent weight has rank 0.
struct ProjectionTensors {
  TensorView residual, fn, norm_weight, workspace;
  bool is_last_reader = false;  // nobody reads the residual again soon
};
/// Writes the partial results. `op` names the launch.
void run_projection(const char* op, const ProjectionShape& shape, const ProjectionTensors& tensors,
                    Stream stream);
/// The kernel that run_projection launches; data pointers are read for their alignment only.
ir::Kernel projection_kernel(const ProjectionShape& shape, const ProjectionTensors& tensors);

}  // namespace tessera::kernels::mhc
