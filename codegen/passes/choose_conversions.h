#pragma once
// Chooses how many elements one GPU conversion takes. The result has the bits of one at a time.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Sets Convert::at_once to the largest of 8, 4 and 2 that divides the width and has a conversion
/// between these dtypes.
void choose_conversions(Program& program);

/// One line per Convert of several elements, for `explain`.
std::vector<std::string> conversion_notes(const Program& program);

}  // namespace tessera::codegen
