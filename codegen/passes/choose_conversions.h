#pragma once
// Decides how many elements one conversion takes on the GPU. The bits are those of one at a time.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Sets Convert::at_once to the most elements, 8, 4 or 2, for which there is a conversion between these
/// dtypes and which divide the width.
void choose_conversions(Program& program);

/// One line per Convert of several elements, for `explain`.
std::vector<std::string> conversion_notes(const Program& program);

}  // namespace tessera::codegen
