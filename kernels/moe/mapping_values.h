#pragma once
// What mappings of tokens to experts promise about their values, checked on CPU tensors
// and reported by kernels.

#include "kernels/value_check.h"

namespace tessera::kernels::moe {

inline constexpr const char* kTooFewPositions =
    "the experts of 'topk_idx' need more positions than 'num_expanded_tokens'";

/// Ids are -1 or an expert, and there are positions for all of them; E and P are bound.
void require_routing(const ArgCheck& check, const TensorView& topk_idx, int64_t alignment);
/// Positions exist, and every one is either padding or that of one pair; P is bound.
void require_expansion(const ArgCheck& check, const TensorView& token_topk_to_pos,
                       const TensorView& pos_to_expert);

}  // namespace tessera::kernels::moe
