#pragma once
// Rules for the use of shared memory by roles, in the tile IR as recorded.

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Throws, with the author's lines:
///
/// - SHARED_BETWEEN_ROLES for a shared tile that a role writes and another uses, unless a ring holds it or both
///   stand in manual_sync, and for a fragment that a role uses and other threads, too;
/// - RING_OUTSIDE for a tile of a ring outside its fills and takes, RING_WRITE for a write in a take;
/// - RING_ROLE for a ring that two roles fill, or one role fills and takes;
/// - RING_COUNT for a ring that is filled and not taken, or taken and not filled, or where the numbers of fills
///   and of takes are constant and different;
/// - CPASYNC_ROWS for a bulk copy outside of a fill, in a kernel with roles.
void check_roles(const ir::Kernel& kernel);

}  // namespace tessera::codegen
