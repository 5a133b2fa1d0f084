#pragma once
// The copy engine's demands on tensor copies and tensor stores, for the verifier.

#include <string_view>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

namespace tensor_copy {

inline constexpr size_t kMaxDimensions = 5;
inline constexpr int64_t kMaxExtent = 256;  // of a box
inline constexpr int64_t kPieceBytes =
    16;  // addresses, strides and rows of a box are multiples of it
inline constexpr int64_t kTargetBytes = 128;  // the alignment of a shared tile without a swizzle

}  // namespace tensor_copy

/// The first rule that a tensor copy or a tensor store breaks, as a sentence; empty if none, and for other statements.
/// `is_placed`: shared arrays have their offsets.
std::string_view broken_rule(const Stmt& stmt, const Program& program, bool is_placed);

}  // namespace tessera::codegen
