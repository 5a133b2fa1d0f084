#pragma once
// What the copy engine asks of tensor copies and tensor stores, for the verifier.

#include <string_view>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// The first rule that a tensor copy or a tensor store breaks, as a sentence; empty if none, and for other statements.
/// `is_placed`: shared arrays have their offsets.
std::string_view broken_rule(const Stmt& stmt, const Program& program, bool is_placed);

}  // namespace tessera::codegen
