#pragma once
// The chunks of the logits of few tokens, each summed by blocks of its own: reading w is the bound there, and the blocks
// that hold all of a token's logits would not keep memory busy. Who reads them adds them in order.

#include "kernels/serving/gate/parts/logits_tile.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

/// Chunks of a call that has x [T, H] and w [E, H].
int64_t chunks_of(const Call& c);

/// Adds the kernel. Returns its result, f32 [chunks, T, E], in the call's workspace.
TensorView add_chunk_sums(const Call& c, Launches& go);

/// The kernel of a tile of logits: of one chunk, in `parts` f32 [chunks, tokens, experts], or of all, in `logits`.
struct LogitsKernelSpec {
  LogitsSpec logits;
  int32_t is_apart;  // 1: of one chunk
  int32_t experts_multiple;
};
LogitsKernelSpec logits_kernel_spec(const Call& c, bool is_apart);
ir::Kernel build_logits(const LogitsKernelSpec& spec);

}  // namespace tessera::kernels::serving
