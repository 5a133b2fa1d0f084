#pragma once
// What the copy engine asks of a tensor copy, for the verifier.

#include <string_view>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// The first rule that `copy` breaks, as a sentence; empty if none. `is_placed`: shared arrays have their
/// offsets.
std::string_view broken_rule(const TensorCopy& copy, const Program& program, bool is_placed);

}  // namespace tessera::codegen
