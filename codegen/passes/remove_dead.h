#pragma once
// Takes out what only the checked executor looks at, and then what nothing observes.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Removes assumptions and checks of indices.
void drop_checks(Program& program);

/// Removes statements that nothing observes: values that are never used, arrays that are never accessed,
/// loops and branches with nothing in them.
void remove_dead(Program& program);

}  // namespace tessera::codegen
