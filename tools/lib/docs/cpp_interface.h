#pragma once
// The C++ interface of ops, written from their signatures: kernels/ops.h and kernels/ops.cpp.

#include <string>
#include <vector>

#include "kernels/op.h"
#include "kernels/signature/op_definition.h"

namespace tessera::tools {

/// A struct of tensors and options per op, and the function that takes it.
std::string cpp_header(const std::vector<const kernels::Op*>& ops);
/// The definitions of these functions.
std::string cpp_source(const std::vector<const kernels::Op*>& ops);

/// A call of the op with these parameters, as a user would write it: `params` that have the default are
/// left out, and so are optional tensors but those of `inputs`.
///
/// Example: "ts::kernels::transpose({.x = x, .out = out}, stream);"
std::string cpp_call(const kernels::Op& op, const kernels::BenchCase& example);

}  // namespace tessera::tools
