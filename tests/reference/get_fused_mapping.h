#pragma once
// The expert-major layout of a routing by definition: one expert after the other.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Outputs under the names of the op. `num_positions` is the length of the pos arrays, negative: as
/// many as needed.
///
///   topk_idx   i64 [T, K]
test::HostTensors get_fused_mapping(const test::HostTensor& topk_idx, int64_t num_experts,
                                    int64_t alignment, int64_t num_positions);

}  // namespace tessera::reference
