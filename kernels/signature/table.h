#pragma once
// The rows of the registry, made from ops.

#include "kernels/signature/call.h"
#include "kernels/signature/op.h"

namespace tessera::kernels {

/// The op with its signature, parsed at the first question; lives as long as the process.
///
/// Errors: program, for a signature that is not understood.
const ParsedOp& parsed(const Op& op);

/// The row of the registry without cases.
const OpInfo& table_of(const ParsedOp& op);

/// The whole row, with examples and bench cases.
OpInfo op_info_of(const Op& op);

/// The cases of a text: one per line or between semicolons.
std::vector<std::string> case_lines(std::string_view cases);

}  // namespace tessera::kernels
