#pragma once
// Device functions for wgmma, one for each shape, dtype and place of the operands: made on demand, since
// there are too many for a table.

#include <string>
#include <string_view>

#include "codegen/thread_ir.h"

namespace tessera::codegen::cuda {

/// The name of the device function that issues the instruction: "wgmma_n128_bf16", with "_ra" for a left operand
/// in registers, "_ta" and "_tb" for transposed ones.
std::string wgmma_name(const Mma& wgmma);
/// True for the names of such functions, which no variable of a kernel may have.
bool is_wgmma_name(std::string_view name);
/// The function's text. It names the type u64.
std::string wgmma_text(const Mma& wgmma);

}  // namespace tessera::codegen::cuda
