#pragma once
// The gated delta rule in chunks of 64 tokens by definition, with the sums of the tensor cores of sm_90: chunk_kernel.cpp has
// the formulas. Rows after the end of a request are zeros, with x = 0 and beta = 0.

#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Mistakes that the cases must catch.
enum class ChunkMistake : uint8_t {
  none,
  keeps_diagonal,    // L has its diagonal
  merge_sign,        // merged blocks keep their sign
  no_merge,          // blocks of 16 alone are inverted
  rate_of_row,       // A_ti = T_ti beta_t
  decay_of_column,   // D_ti = 2^(G_i)
  decay_by_product,  // exponentials of positive sums times 0, not select
  no_clamp,          // logarithms may be -infinity
  padding_counts,    // rows behind the length are tokens
  decayed_first,     // the state decays before W and out read it
  head_modulo,       // value head a has key head a mod h
  wraps_slot,        // slot -1 is the last slot
  eps_outside,       // eps is added to the length
  base_two,          // g is taken for a log2
  inverse_first,     // the inverse is that without decays, which follow
  scales_half,       // P is not scaled
  not_causal,        // P has the tokens after its row
  keeps_state,       // the state is not written
  forgets_state,     // every chunk starts from +0
  joins_requests,    // packed requests are one
  // That changes no more than the last bits:
  rounds_u_first,  // the state takes round(U), not U
};

test::HostTensors gated_delta_fwd(const test::HostTensors& in, const kernels::Params& params,
                                  ChunkMistake mistake = ChunkMistake::none);

/// Packed requests, each as gated_delta_fwd has it alone. Bounds out of order, or beyond the tokens, are cut; rows after the last
/// request are zeros.
test::HostTensors gated_delta_varlen_fwd(const test::HostTensors& in, const kernels::Params& params,
                                         ChunkMistake mistake = ChunkMistake::none);

}  // namespace tessera::reference
