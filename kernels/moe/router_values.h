#pragma once
// What top2_sum_gate asks of the values of its inputs, checked on CPU tensors and reported by its
// kernel.

#include "kernels/signature/call.h"

namespace tessera::kernels::moe {

/// Logits of tokens that are not masked are finite, and the experts that such tokens keep exist.
/// Replicas are as many as the map has columns at most, and each is a physical expert.
void require_routable(const Call& c);

}  // namespace tessera::kernels::moe
