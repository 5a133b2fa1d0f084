#pragma once
// Token counts are dynamic: a new one compiles nothing, unless it lies in a bucket of the signature
// that no call has met.

#include <string>
#include <vector>

#include "kernels/signature/call.h"

namespace tessera::kernels {

/// The case with the first token count of every bucket instead of its own; none if the signature
/// declares no bucket. Their kernels and the case's are those of any token count.
///
/// Example: "T=13 n=4 H=1280" of norm_fn_fwd, bucket T at 129, 513:
///          {"T=1 n=4 H=1280", "T=129 n=4 H=1280", "T=513 n=4 H=1280"}
std::vector<std::string> cases_of_buckets(const ParsedOp& op, const std::string& text);

}  // namespace tessera::kernels
