#pragma once
// What the plans of the compressor ask of the values of their inputs.

#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// Positions are -1 or more, and the tables have the slots and pages of every window that a plan names.
void require_decode_slots(const Call& c);

/// Requests begin at 0 or more, and their rows follow each other; the tables as above; there is room
/// for all windows and writes.
void require_plan_slots(const Call& c);

/// Windows and writes of one request, by position: those of the tail of pages come first.
struct RequestSize {
  int64_t windows = 0, tails = 0, writes = 0;
  int64_t kept = 0;  // the first position that is stored in any case
};
RequestSize request_size(const Call& c, int64_t start, int64_t tokens);

}  // namespace tessera::kernels::serving
