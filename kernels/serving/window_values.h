#pragma once
// What the ops of the compressor ask of their tensors and of the values of a plan.

#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// x, ape and state have the rows of the ratio, and the state holds x exactly.
void require_windows(const Call& c);
/// The state holds x exactly.
void require_state(const Call& c);

/// Rows and slots of the windows of compress_plan are there.
void require_planned_windows(const Call& c);
/// Rows and slots of the tokens of compress_plan_decode are there, each slot once, and the slots of
/// the windows that end.
void require_planned_tokens(const Call& c);
/// Rows and slots of write_plan are there, each slot once.
void require_planned_writes(const Call& c);
/// The entries of a plan have a place in the cache, each one of its own, and a row of cos_sin.
void require_places(const Call& c);

}  // namespace tessera::kernels::serving
