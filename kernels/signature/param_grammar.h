#pragma once
// Parses parameter values of the command line.

#include <span>
#include <string>

#include "kernels/call_types.h"

namespace tessera::kernels {

struct OpInfo;
struct ParamInfo;

/// Parses one parameter: `128`, `-1`, `1e-6`, `inf`, `true`, a word, `128,128` or `[128, 128]`,
/// `none`. Throws Error (argument) if the text is not of the parameter's type. check_params checks
/// ranges.
ParamValue parse_value(const OpInfo& op, const ParamInfo& param, const std::string& text);

/// Parses "name=value" texts to checked parameters with defaults. Throws Error (argument) for a
/// missing '=', a repeated name, and all errors of parse_value and check_params. Example:
/// parse_params(op, {"format=e4m3", "num_per_channels=128"}).
Params parse_params(const OpInfo& op, std::span<const std::string> assignments);

}  // namespace tessera::kernels
