#pragma once
// Token counts are dynamic: a new count compiles nothing, unless it is the first in its bucket of
// the signature.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/signature/call.h"

namespace tessera::kernels {

/// The case without tokens, and with the first token count of every declared bucket. Together with the
/// case they need the kernels of any token count. Empty for an op without tokens.
///
/// Example: "T=13 n=4 H=1280" of norm_fn_fwd, bucket T at 129, 513:
///          {"T=0 n=4 H=1280", "T=1 n=4 H=1280", "T=129 n=4 H=1280", "T=513 n=4 H=1280"}
std::vector<std::string> cases_of_buckets(const ParsedOp& op, const std::string& text);

/// The token counts whose calls need the same kernels as the case, but none.
struct TokenBucket {
  int64_t first = 1, last = 0;
};
/// The bucket of a case, by T or P; nothing if the op's inputs have no such extent.
std::optional<TokenBucket> bucket_of(const ParsedOp& op, const std::string& text,
                                     const std::string& symbol);

/// Sets one word of a case, which the case may have left out.
std::string case_with(const std::string& text, const std::string& symbol, int64_t value);

/// Adds the kernels of a call's buckets to the recording (TESSERA_RECORD), once per case without its
/// token count. They assume the call's input strides and tensor alignments, and row-major outputs.
/// Call it after the launches of a recorded call (jit::is_recorded).
void record_buckets(const Call& call, const Tensors& tensors);

}  // namespace tessera::kernels
