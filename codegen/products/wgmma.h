#pragma once
// The columns of wgmma instructions.

#include <cstdint>
#include <vector>

#include "dsl/base/dtype.h"

namespace tessera::codegen {

/// Splits `n` columns into the columns of single instructions, as few and as equal as possible; empty if
/// impossible.
///
///   wgmma_parts(320, DType::bf16)  // {160, 160}
///   wgmma_parts(40, DType::i8)     // {24, 16}
std::vector<int64_t> wgmma_parts(int64_t n, DType operand);

}  // namespace tessera::codegen
