#pragma once
// The value requirements of the compressor's plans.

#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// Requires positions >= -1, and tables with the slots and pages of every planned window.
void require_decode_slots(const Call& c);

/// Requires requests that begin at 0 or more, with consecutive rows; tables as above; and room for
/// all windows and writes.
void require_plan_slots(const Call& c);

/// The windows and writes of one request by position; those of page tails come first.
struct RequestSize {
  int64_t windows = 0, tails = 0, writes = 0;
  int64_t kept = 0;  // first position that is stored in any case
};
RequestSize request_size(const Call& c, int64_t start, int64_t tokens);

}  // namespace tessera::kernels::serving
