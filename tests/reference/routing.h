#pragma once
// The small ops around a routing by definition: weights, renumbering, groups and counts.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// d = 1e-20 + w[t, 0] + w[t, 1] + .. in f32, in this order; w / d.
///
///   topk_weights   f32 [T, K]
struct NormalizedWeights {
  test::HostTensor denominator, normalized;
};
NormalizedWeights normalize_weight(const test::HostTensor& topk_weights);

struct TpRanks {
  int64_t num_experts, num_ep_ranks, tp_rank, num_tp_ranks;
};
/// The ids of one tensor-parallel rank without those of the others between them, -1 for the others
/// and for what is negative.
///
///   indices   i64 or i32 [T, K]
test::HostTensor mask_indices_by_tp(const test::HostTensor& indices, const TpRanks& ranks);

/// The `num_topk_groups` groups with the largest sums of their `num_topk_sum` largest scores, largest
/// first, equal ones by smaller number. NaN scores and NaN sums are -infinity.
///
///   scores    f32 [T, G, M]
///   returns   i64 [T, num_topk_groups]
test::HostTensor topk_sum_and_topk_group_idx(const test::HostTensor& scores, int64_t num_topk_sum,
                                             int64_t num_topk_groups);

/// How often each of 0 .. num_groups - 1 occurs, i32.
test::HostTensor group_count(const test::HostTensor& group_idx, int64_t num_groups);

/// count * num_experts / (T * num_aux_topk), both products exact, then rounded to f32; zeros for T = 0.
test::HostTensor aux_fi(const test::HostTensor& topk_idx, int64_t num_experts,
                        int64_t num_aux_topk);

/// -1 in place of every id of 0 .. num_groups - 1 that stands further left in its row too.
///
///   group_indices   i64 [T, K]
test::HostTensor inplace_unique_group_indices(const test::HostTensor& group_indices,
                                              int64_t num_groups);

}  // namespace tessera::reference
