#pragma once
// Which copies from global to shared memory go by tensor copies: one box of a tensor map at a time, copied by the
// hardware, instead of pieces that each thread copies.

#include <string>
#include <vector>

#include "dsl/base/target.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// After pipeline_loops and lower_rings: marks copies in the background (AccessTerms::tensor) whose author asks for
/// Engine::tensor, if the target has tensor copies. All others stay what they are. Adds a note per marked copy.
///
/// Errors: COPY_ENGINE, with the first condition that is not proved, where the author asks for
///         Engine::tensor.
void choose_copies(ir::Kernel& kernel, Target target, std::vector<std::string>& notes);

}  // namespace tessera::codegen
