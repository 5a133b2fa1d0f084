#pragma once
// The requirements of the compressor's ops on their tensors and on the values of a plan.

#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// Requires x, ape and state with the rows of the ratio, and a state that holds x exactly.
void require_windows(const Call& c);
/// Requires a state that holds x exactly.
void require_state(const Call& c);

/// Requires the rows and slots of the windows of compress_plan.
void require_planned_windows(const Call& c);
/// Requires the rows and slots of the tokens of compress_plan_decode, each slot once, and the slots
/// of the windows that end.
void require_planned_tokens(const Call& c);
/// Requires the rows and slots of write_plan, each slot once.
void require_planned_writes(const Call& c);
/// Requires for each entry of a plan its own place in the cache, and a row of cos_sin.
void require_places(const Call& c);

}  // namespace tessera::kernels::serving
