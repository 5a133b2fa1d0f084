#pragma once
// Bounds of packed requests on the host: their values, and those of cases.

#include <cstdint>

#include "kernels/signature/call.h"

namespace tessera::kernels::attention {

/// cu_q and cu_k ascend from 0 to at most the rows of the tensors. Errors: argument.
void require_bounds(const Call& c);

/// Where request b - 1 of a case ends: each is longer than the one before.
int64_t bound(int64_t rows, int64_t requests, int64_t b);

}  // namespace tessera::kernels::attention
