#pragma once
// Which copies between global and shared memory go by tensor copies and tensor stores: one box of a tensor map at a
// time, moved by the hardware, instead of pieces that each thread copies or elements that it stores.

#include <string>
#include <vector>

#include "dsl/base/target.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// After pipeline_loops and lower_rings: marks copies in the background (AccessTerms::tensor) whose author asks for
/// Engine::tensor, if the target has tensor copies, and copies that add wherever that is possible. All others stay what
/// they are. Adds a note per copy that could be marked, and COPY_ADD_ORDER where an element of floats may get several
/// additions.
///
/// Errors: COPY_ENGINE, with the first condition that is not proved, where the author asks for
///         Engine::tensor.
void choose_copies(ir::Kernel& kernel, Target target, std::vector<std::string>& notes);

}  // namespace tessera::codegen
