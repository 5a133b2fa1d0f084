#pragma once
// Calls that touch no memory: their tensors have shapes and addresses without memory. For
// jit::prepare, jit::kernels_needed and OpInfo::kernels.

#include "kernels/op.h"

namespace tessera::kernels {

/// Views of a case's inputs without data, for OpInfo::outputs and OpInfo::kernels.
Tensors views_of(const BenchCase& example);

/// The same, with the outputs of the op.
///
/// Errors: those of OpInfo::outputs.
Tensors views_with_outputs(const OpInfo& op, const Tensors& inputs, const Params& params);

/// Views at aligned addresses, far apart and without memory, on a device that need not exist.
Tensors placed_nowhere(Tensors views, Device device);

}  // namespace tessera::kernels
