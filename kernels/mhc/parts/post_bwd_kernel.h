#pragma once
// The kernel of post_bwd.

#include "dsl/ir/tile.h"

namespace tessera::kernels::mhc {

/// Limit: n (n + 1) sums, the mixes and one vector of each stream must fit in the registers of a
/// thread.
inline constexpr int64_t kMaxPostBwdStreams = 4;

/// Everything that generated code depends on.
struct PostBwdSpec {
  int32_t streams, hidden;
  int32_t align;  // bytes, of the bf16 tensors
};

/// Tensors: grad_out, x, residual, post_mix, comb_mix; grad_x, grad_residual, grad_post_mix,
/// grad_comb_mix. For rows without columns only the last two.
ir::Kernel build_post_bwd(const PostBwdSpec& s);

}  // namespace tessera::kernels::mhc
