#pragma once
// The value requirements of token-expert mappings, checked on CPU tensors and reported by kernels.

#include "kernels/checks/value_check.h"
#include "kernels/signature/call.h"

namespace tessera::kernels::moe {

inline constexpr const char* kTooFewPositions =
    "the experts of 'topk_idx' need more positions than 'num_expanded_tokens'";

inline constexpr const char* kTooFewRows =
    "the experts of 'topk_idx' need more rows than 'num_rows'";

/// Requires ids of topk_idx to be -1 or an expert, and enough positions for all.
void require_routing(const Call& c);
/// The same of moe_plan, whose tokens from num_tokens on do not count.
void require_plan(const Call& c);
/// Requires the ids of tokens that count to be -1 or one of the E experts.
void require_ids(const Call& c);
/// Requires every position to be padding or the position of one pair.
void require_expansion(const Call& c);

}  // namespace tessera::kernels::moe
