#pragma once

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Inserts a cluster barrier before exit: DSMEM of an exited block must not be accessed. The arrival
/// follows the last access, the wait ends the kernel. Does nothing where the author's barrier follows
/// the last access.
void insert_cluster_exit_barrier(Program& program);

}  // namespace tessera::codegen
