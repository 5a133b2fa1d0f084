#pragma once
// Makes the rows of the registry from ops.

#include "kernels/signature/call.h"
#include "kernels/signature/op_definition.h"

namespace tessera::kernels {

/// The op with its signature, parsed at the first call; lives until the process ends.
///
/// Errors: program, for an invalid signature.
const ParsedOp& parsed(const Op& op);

/// The row of the registry without cases.
const OpInfo& table_of(const ParsedOp& op);

/// The whole row, with examples and bench cases.
OpInfo op_info_of(const Op& op);

/// Splits a text into cases: one per line or between semicolons.
std::vector<std::string> case_lines(std::string_view cases);

}  // namespace tessera::kernels
