#pragma once
// Chooses unroll factors of loops over slots.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Sets For::at_once of loops that only move many slots between memories. Full unrolling of such a
/// loop would dominate NVRTC's time and cost registers that limit occupancy. Loops whose index
/// selects registers are unrolled fully. Runs after remove_dead.
void choose_unroll(Program& program);

}  // namespace tessera::codegen
