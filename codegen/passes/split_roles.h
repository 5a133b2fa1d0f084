#pragma once
// Pipelined loops with a producer (PipelineOptions::producer) to two roles and a ring for each loop.
//
//   role 'compute', the threads of the launch     role 'load', one warp more
//     everything that the kernel does               the loops and conditions around
//     for i in begin .. end:                        for i in begin .. end:
//       what stands before the first reader           what the copies depend on
//       take: the readers of what is copied           fill: the copies
//       the rest
//
// The copies are those that pipeline_loops would issue ahead, except that they convert nothing and read tensors that
// the kernel does not write. The others stay in role 'compute'. The passes that follow see roles and rings as an
// author writes them.

#include <string>
#include <vector>

#include "dsl/base/target.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Returns the kernel without producers, and as it is if there are none. The load role takes a whole group of four
/// warps on sm_90a where that gives those that multiply more registers. Adds a note per copy to `notes`.
///
/// Errors: PRODUCER, with the statement in the way: a copy, a condition or a bound around depends on what the
///         threads compute; no copy can go; all threads of the block meet in the kernel, or leave it; the kernel has
///         roles already, or a block that takes no more warps. ASYNC_IN_PIPELINE as pipeline_loops.
ir::Kernel split_roles(const ir::Kernel& kernel, Target target, std::vector<std::string>& notes);

}  // namespace tessera::codegen
