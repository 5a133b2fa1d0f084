#pragma once
// Bulk copies in groups become bulk copies that complete at mbarriers.
//
// All threads commit and await the same groups. Two counters of each thread say how many groups it has
// committed and awaited; group g is phase g / n of mbarrier g % n, where n mbarriers take turns. Each warp
// arrives once per phase, when it commits the group: the phase ends when all warps have committed and all
// bytes are there. No warp arrives at a phase before it has awaited the last one of that mbarrier.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Before arrange_shared: adds the array of mbarriers to the shared memory of a program with bulk copies. Their
/// number is one for every group that may be in flight at a wait, and one more.
void add_mbarriers(Program& program);

/// After all passes that order accesses by groups: gives each bulk copy its mbarrier, and makes arrivals of
/// commits, waits at mbarriers of waits for groups, and stores of zeros where the guard of a copy is false.
/// Threads that leave wait for what is in flight first. Where bulk copies follow stores to the same shared
/// memory, proxy fences stand before the barriers between them. Other copies keep their groups, and bulk copies
/// of rings their mbarriers.
void lower_bulk_copies(Program& program);

}  // namespace tessera::codegen
