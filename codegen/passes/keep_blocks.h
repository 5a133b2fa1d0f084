#pragma once

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Where blocks of a cluster reach each other's shared memory: none ends before the others have done
/// so. Adds the two halves of a cluster barrier, one behind the last access and one at the end, unless
/// the author's stands behind the last access.
void keep_blocks(Program& program);

}  // namespace tessera::codegen
