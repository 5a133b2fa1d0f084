#pragma once
// topk_gate by definition: a stable sort of the experts of each token.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// The `num_topk` largest experts of each row, largest first, equal scores by smaller index; +0 =
/// -0, NaN = -infinity, indices of a row always distinct.
///
///   scores    f32 [T, E]
///   returns   i64 [T, num_topk]
///
/// Example: scores {{1, 3, 3}}, num_topk 2 gives {{1, 2}}.
test::HostTensor topk_gate(const test::HostTensor& scores, int64_t num_topk);

}  // namespace tessera::reference
