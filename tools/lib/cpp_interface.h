#pragma once
// The C++ interface of ops, written from their signatures: kernels/ops.h and kernels/ops.cpp.

#include <string>
#include <vector>

#include "kernels/signature/op.h"

namespace tessera::tools {

/// A struct of tensors and options per op, and the function that takes it.
std::string cpp_header(const std::vector<const kernels::Op*>& ops);
/// The definitions of these functions.
std::string cpp_source(const std::vector<const kernels::Op*>& ops);

}  // namespace tessera::tools
