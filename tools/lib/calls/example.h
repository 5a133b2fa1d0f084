#pragma once
// Which kernels stand for an op: those of a file's tensors, or of one of its examples.

#include <string>
#include <vector>

#include "kernels/op.h"
#include "tools/lib/safetensors.h"

namespace tessera::tools {

/// The first example whose parameters have the values that `assignments` ("name=value") give; all
/// of them if there are no assignments. Throws Error (argument), listing the examples, if there is
/// none, and parse_params' errors for names and values that the op does not take.
const kernels::BenchCase& find_example(const kernels::OpInfo& op,
                                       const std::vector<std::string>& assignments);

/// The kernels that the op would launch for an example, and for the tensors of a file.
std::vector<ir::Kernel> kernels_of(const kernels::OpInfo& op, const kernels::BenchCase& example);
std::vector<ir::Kernel> kernels_of(const kernels::OpInfo& op, const kernels::Params& params,
                                   const Safetensors& inputs);

}  // namespace tessera::tools
