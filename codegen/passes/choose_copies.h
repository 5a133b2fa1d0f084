#pragma once
// The engine of every copy, decided here and nowhere else: one box of a tensor map at a time, moved by the hardware; a bulk
// copy per row; pieces that each thread copies in the background; or loads and stores of threads. ir::CopyPlan keeps the
// decision until the copy is lowered.

#include <string>
#include <vector>

#include "dsl/base/target.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// After pipeline_loops and lower_rings. Boxes are for copies in the background and stores whose author asks for
/// Engine::tensor, if the target has tensor copies, and for copies that add wherever that is possible. Other copies in the
/// background go by bulk copies where the author says so, else in pieces if their runs have 4, 8 or 16 bytes. Adds a note per
/// copy in the background, store by boxes and addition, and COPY_ADD_ORDER where an element of floats may get several additions.
///
/// Errors: COPY_ENGINE, with the first condition that is not proved, where the author asks for
///         Engine::tensor; CPASYNC_WIDTH for a copy that the author awaits and that has no pieces.
void choose_copies(ir::Kernel& kernel, Target target, std::vector<std::string>& notes);

}  // namespace tessera::codegen
