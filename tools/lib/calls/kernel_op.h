#pragma once
// A kernel by itself as an op: what the program needs to know of it stands in its declaration.

#include <string>
#include <vector>

#include "dsl/ir/tile.h"
#include "kernels/op.h"

namespace tessera::tools {

/// The family of all ops that are made so.
inline constexpr const char* kOwnFamily = "own";

/// The kernel as an op of kOwnFamily. Tensors, dtypes and shapes are those it declares; parameters
/// are its scalars, and the dims that no required input determines. An output begins as zeros; one
/// that the kernel reads too may be given, as an in-place tensor.
///
/// Each case is a call in words, with blanks between: a value for every dim and scalar
/// ("rows=4096 eps=1e-6"), "ids=0..255" for the values of an integer input (inclusive; otherwise as
/// random_tensor() makes them), "bias=none" for an optional input that is not given. They are the
/// op's examples and its benchmark.
///
/// Throws Error (argument) for a case that leaves out a dim or a scalar, names something else, says
/// something twice, or has a value that cannot be read; program, for a dim that no tensor determines.
kernels::OpInfo op_of(const std::string& name, const ir::Kernel& kernel,
                      const std::vector<std::string>& cases);

}  // namespace tessera::tools
