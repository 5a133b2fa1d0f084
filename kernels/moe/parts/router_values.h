#pragma once
// The value requirements of top2_sum_gate, checked on CPU tensors and reported by its kernel.

#include "kernels/signature/call.h"

namespace tessera::kernels::moe {

/// Requires finite logits of unmasked tokens and existing experts where they keep some. Requires at
/// most as many replicas as the map has columns, each a physical expert.
void require_routable(const Call& c);

/// The part of it that needs no logits: experts that the first `tokens` tokens keep, and replicas.
void require_kept_and_mapped(const Call& c, int64_t tokens);

}  // namespace tessera::kernels::moe
