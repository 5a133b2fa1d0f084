#pragma once
// Token counts are dynamic: a new one compiles nothing, unless it lies in a bucket of the signature
// that no call has met.

#include <string>
#include <vector>

#include "kernels/signature/call.h"

namespace tessera::kernels {

/// The case without tokens, and with the first token count of every bucket that the signature declares.
/// Their kernels and the case's are those of any token count. None for an op without tokens.
///
/// Example: "T=13 n=4 H=1280" of norm_fn_fwd, bucket T at 129, 513:
///          {"T=0 n=4 H=1280", "T=1 n=4 H=1280", "T=129 n=4 H=1280", "T=513 n=4 H=1280"}
std::vector<std::string> cases_of_buckets(const ParsedOp& op, const std::string& text);

/// Adds the kernels of a call's buckets to the recording (TESSERA_RECORD), once per case without its
/// token count. They are those of inputs with the call's strides and of tensors with its alignments;
/// outputs lie row-major. Called for calls that are recorded (jit::is_recorded), after their launches.
void record_buckets(const Call& call, const Tensors& tensors);

}  // namespace tessera::kernels
