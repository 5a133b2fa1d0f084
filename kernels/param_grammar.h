#pragma once
// Parameter values as the command line writes them.

#include <span>
#include <string>

#include "kernels/call_types.h"

namespace tessera::kernels {

struct OpInfo;
struct ParamInfo;

/// The value of one parameter: `128`, `-1`, `1e-6`, `inf`, `true`, a word, `128,128` or `[128,
/// 128]`, `none`. Throws Error (argument) if the text is not of the parameter's type; ranges are
/// check_params' business.
ParamValue parse_value(const OpInfo& op, const ParamInfo& param, const std::string& text);

/// "name=value" texts to checked parameters with defaults filled in. Throws Error (argument): no
/// '=', a name twice, and everything that parse_value and check_params refuse. Example:
/// parse_params(op, {"format=e4m3", "num_per_channels=128"}).
Params parse_params(const OpInfo& op, std::span<const std::string> assignments);

}  // namespace tessera::kernels
