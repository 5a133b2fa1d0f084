#pragma once
// What the ops with a projection check alike.

#include "kernels/arg_check.h"
#include "kernels/mhc/projection.h"
#include "kernels/mhc/token_dims.h"

namespace tessera::kernels::mhc {

/// Checks residual, fn and norm_weight; binds n, H and M ("entries").
ProjectionShape check_projection(ArgCheck& check, const TokenDims& tokens, const Tensors& tensors,
                                 int64_t num_splits);

/// Checks the workspace of a call: f32, exactly `elements`.
void check_workspace(ArgCheck& check, const Tensors& tensors, int64_t elements);
/// The same as an output to allocate.
OutputInfo workspace_info(int64_t elements);

/// Those of a call; what is absent has rank 0.
ProjectionTensors projection_tensors(const Tensors& tensors, bool is_last_reader);

}  // namespace tessera::kernels::mhc
