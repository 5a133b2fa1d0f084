#pragma once
// The optimizer of Engram tables by definition: momentum, and the scaling of rows and columns.

#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// m = fma(momentum, beta1, (1 - beta1) grad), out = fma(grad, 1 - beta1, beta1 m), or m without nesterov;
/// `momentum` becomes m in its dtype. 1 - beta1 is rounded once from f64.
test::HostTensors engram_sinkhorn_momentum(const test::HostTensors& tensors, double beta1,
                                           bool nesterov);

/// x = (row_scale matrix) col_scale, row_norm = the root of the sum of squares of each row (lane_sum.h),
/// v = 1 / (row_norm + eps): row_scale v, and col_sumsq = the sum of (x v)^2 over the rows. At most 264
/// runs of equally many rows are added by fma, in ascending order; then the runs, in ascending order.
test::HostTensors engram_sinkhorn_step(const test::HostTensors& tensors, double eps);

/// out = x (alpha / (row_norm + eps)) with x and row_norm as above.
test::HostTensors engram_sinkhorn_finalize(const test::HostTensors& tensors, double eps,
                                           double alpha);

/// The op of that name; null for another.
Runner engram_sinkhorn_runner(const std::string& op);

}  // namespace tessera::reference
