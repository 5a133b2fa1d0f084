#pragma once
// Every op of the library.

#include <vector>

#include "kernels/signature/op_definition.h"

namespace tessera::kernels {

#define OP(name) extern const Op name##_op
#include "kernels/registry/op_list.h"
#undef OP

/// All ops, in the order of the contract.
const std::vector<const Op*>& all_ops();

}  // namespace tessera::kernels
