#pragma once
// Calls that touch no memory: their tensors have shapes, and addresses where nothing is. For
// jit::prepare, jit::kernels_needed and OpInfo::kernels.

#include "kernels/op.h"

namespace tessera::kernels {

/// Views of a case's inputs without data: what OpInfo::outputs and OpInfo::kernels need.
Tensors views_of(const BenchCase& example);

/// The same with the outputs that the op would make for them.
///
/// Errors: those of OpInfo::outputs.
Tensors views_with_outputs(const OpInfo& op, const Tensors& inputs, const Params& params);

/// Views at aligned addresses on a device that need not exist, far from each other. Nothing is there.
Tensors placed_nowhere(Tensors views, Device device);

}  // namespace tessera::kernels
