#pragma once
// The ops around routing by a table, by definition.

#include <string>

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct HashGateOptions {
  int64_t num_shared_experts = 0;
  double routed_scaling_factor = 1;
  bool scales_routed = false;  // by the factor; else the shared experts by its inverse
  DType idx_dtype = DType::i32;
};

/// Experts e_k = table[token_ids[t], k] with u_k = sqrt(softplus(logits[t, e_k])) over 1e-20 + their
/// sum, which is taken over 32 lanes in pairs at distance 16, 8, 4, 2, 1. Shared expert j has id E + j.
/// Rows from num_tokens on, and rows whose token is unknown or that meet a logit that is not finite:
/// ids -1, weights +0. An expert outside 0 .. E - 1: id -1, weight +0, nothing in the sum.
///
///   token_ids          i64 or i32 [T]
///   table              i32 [V, K]
///   logits             f32 [T, E]
///   num_tokens         i32 [1]; null: T
struct HashedExperts {
  test::HostTensor topk_idx, topk_weights;
};
HashedExperts hash_gate(const test::HostTensor& token_ids, const test::HostTensor& table,
                        const test::HostTensor& logits, const test::HostTensor* num_tokens,
                        const HashGateOptions& options);

/// Rows from num_tokens on become ids -1 and weights +0; the others stay.
///
///   tensors   num_tokens i32 [1], topk_idx i32 or i64 [T, K], topk_weights f32 [T, K] or none
///   returns   topk_idx and topk_weights, if they were given
test::HostTensors mask_padded_topk(const test::HostTensors& tensors);

}  // namespace tessera::reference
