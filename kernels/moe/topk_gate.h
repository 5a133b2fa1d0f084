#pragma once
// The K best experts of every token.

#include "kernels/op.h"

namespace tessera::kernels {

struct TopkGateOptions {
  int64_t num_topk = 0;  // 1 .. experts
};

/// Lists the ids of the `num_topk` largest scores of each row, largest first.
///
///   scores     f32   [tokens, experts]    contiguous, at most 4096 experts
///   topk_idx   i64   [tokens, num_topk]   contiguous
///
/// Equal scores are listed by ascending id, +0 equals -0, NaN counts as -inf; ids of a row are
/// distinct.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees or num_topk is not in 1 ..
/// experts;
///          kind unsupported beyond 4096 experts.
/// Example: topk_gate(scores, topk_idx, {.num_topk = 8}, stream);
void topk_gate(const TensorView& scores, const TensorView& topk_idx, const TopkGateOptions& options,
               Stream stream);

const OpInfo& topk_gate_op();

}  // namespace tessera::kernels
