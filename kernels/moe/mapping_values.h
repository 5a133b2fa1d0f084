#pragma once
// What mappings of tokens to experts promise about their values, checked on CPU tensors
// and reported by kernels.

#include "kernels/signature/call.h"
#include "kernels/value_check.h"

namespace tessera::kernels::moe {

inline constexpr const char* kTooFewPositions =
    "the experts of 'topk_idx' need more positions than 'num_expanded_tokens'";

/// There are positions for all ids of topk_idx, which are -1 or an expert.
void require_routing(const Call& c);
/// Every position is either padding or that of one pair.
void require_expansion(const Call& c);

}  // namespace tessera::kernels::moe
