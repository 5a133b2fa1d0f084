#pragma once
// Gradients of attention by definition: the canonical order, with the sums of the tensor cores of sm_90 and exact
// elementary functions. CHAIN(acc; a, b) adds products in steps of 16, as one instruction does.
//
// For each query head and its row i, with x, c and the visible keys of the forward pass:
//   delta = SUM(fma(dO, O, acc)): 4 columns to a lane, lanes in a tree of neighbours; delta' = delta - grad_lse
//   a = lse * log2 e; with a sink b = sink * log2 e, T = max(a, b), a = T + log2(2^(a - T) + 2^(b - T)),
//   psink = 2^(b - a); lse or b = +inf: a = +inf, psink = 0
//   p = 2^fma(x, c, -a); dP = CHAIN(+0; dO, v); ds = p * (dP - delta'), with a cap times fma(-x, x, 1); where the row
//   does not see the key +0. P16 and D16 are p and ds in the dtype of q.
// grad_v and grad_k of a key are CHAIN over the rows of the request, from row 0; heads of a group are added ascending.
// grad_q of a row: for each block of keys, ascending, acc = acc + CHAIN(+0; D16, k). At the end grad_q and grad_k times
// scale, each rounded once. grad_sink: runs of 128 rows, fma(psink, delta, r); run sums ascending; negated, added once.

#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Mistakes that the cases must catch.
enum class BackwardMistake : uint8_t {
  none,
  top_left,          // the mask starts at the first key
  left_edge,         // the window has one more key on the left
  right_edge,        // and on the right
  exchanged_heads,   // query head a reads key head a mod g
  first_head_alone,  // grad_k and grad_v lack the heads > 0 of a group
  scales_early,      // scale is applied to ds before it is rounded
  no_sink_in_p,      // p and psink from lse without the sink
  forgets_delta,     // ds = p * dP
  forgets_grad_lse,  // ds without it
  forgets_cap,       // ds without the derivative of the cap
  unscaled_grad_k,   // grad_k lacks scale
  overwrites_sink,   // grad_sink is not added to what was there
  padded_rows,       // rows behind the request's end count
  heads_backwards,   // the heads of a group are added from the last
  small_blocks,      // grad_q in blocks of half the keys
  unrounded,         // ds is not rounded before the products
};

/// attention_bwd and attention_varlen_bwd: grad_q, grad_k, grad_v and, where `in` has a sink, grad_sink.
test::HostTensors attention_bwd(const test::HostTensors& in, const kernels::Params& params,
                                BackwardMistake mistake = BackwardMistake::none);

}  // namespace tessera::reference
