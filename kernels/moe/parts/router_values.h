#pragma once
// The value requirements of top2_sum_gate, checked on CPU tensors and reported by its kernel.

#include "kernels/signature/call.h"

namespace tessera::kernels::moe {

/// Requires finite logits of unmasked tokens and existing experts where they keep some. Requires at
/// most as many replicas as the map has columns, each a physical expert.
void require_routable(const Call& c);

}  // namespace tessera::kernels::moe
