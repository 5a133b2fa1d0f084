#pragma once
// Random routings of tokens to experts, and the positions they lead to.

#include "tests/support/host_tensor.h"

namespace tessera::test {

/// Routes tokens at random: each slot goes to one of `num_experts`, different ones within a token,
/// or, one time in three, nowhere.
///
///   returns   i64 [num_tokens, num_topk]
HostTensor random_topk_idx(int64_t num_tokens, int64_t num_topk, int64_t num_experts,
                           uint64_t seed);

struct ExpertMapping {
  HostTensor token_topk_to_pos;  // i32 [T, K]
  HostTensor pos_to_expert;      // i32 [P]
};
/// Positions of a routing: experts in ascending order, entries of one in ascending order, each
/// expert's range padded to a multiple of `alignment`.
ExpertMapping mapping_of(const HostTensor& topk_idx, int64_t num_experts, int64_t alignment);

}  // namespace tessera::test
