#pragma once
// Attention by definition: the canonical sequence of one query row, with the sums of the tensor cores of
// sm_90 and exact elementary functions.
//
// A row keeps its maximum m of raw scores, ms = m * c with c = scale * log2 e, 32 classes of partial sums l
// and its output o. It visits the blocks of keys in which it sees one, in ascending order:
//   x = the score; -inf where the row does not see the key
//   m' = max(m, x ..); ms' = m' * c; f = 2^(ms - ms')
//   p = 2^fma(x, c, -ms'); each class: l = fma(l, f, first p), then l + p
//   o = o * f, then o += round(p) v in steps of 16 keys
// At the end out = round(fma(o, 1 / (sum of l + 2^(sink * log2 e - ms)), +0)).
//
// With split_len the blocks of each split_len keys form a part, which starts anew. Parts are joined from left to right:
// M = max(ms, ms_z), a = 2^(ms - M), b = 2^(ms_z - M), l = fma(l_z, b, l * a), o = fma(o_z, b, o * a).

#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Mistakes that the cases must catch.
enum class AttentionMistake : uint8_t {
  none,
  top_left,             // the mask starts at the first key
  large_negative,       // -1e30 for a key that is not seen
  sums_rounded_p,       // l sums p as it is multiplied
  sink_in_lse,          // lse counts the sink
  forgets_half,         // the second half of o is not rescaled
  forgets_sum,          // l is not rescaled
  last_block_unmasked,  // keys behind the end of a request count
  left_edge,            // the window has one more key on the left
  right_edge,           // and on the right
  exchanged_heads,      // query head a reads key head a mod g
  drops_nan,            // a NaN score counts as -inf
  negative_zero,        // out is not cleared of -0
  // Those change no more than the last bits:
  scaled_scores,  // scores times c, rounded, before the maximum
  one_class,      // l is one sum in ascending order
  small_blocks,   // blocks of half the keys
  backwards,      // parts are joined from right to left
  // In attention_decode alone:
  part_twice,        // the last part is joined twice
  forgets_part,      // the first of several parts is left out
  behind_length,     // keys behind the length are seen
  missing_page,      // keys of a page that does not exist are seen, as zeros
  pages_of_64,       // pages have 64 rows
  scale_of_head_0,   // k_sf and v_sf of the first head for all
  v_sf_before_sink,  // the sink is scaled too
};

/// attention_fwd and attention_varlen_fwd: `out` and `lse`.
test::HostTensors attention(const test::HostTensors& in, const kernels::Params& params,
                            AttentionMistake mistake = AttentionMistake::none);

/// attention_decode: the same of the last rows of each request, whose keys are gathered from pages.
test::HostTensors attention_decode(const test::HostTensors& in, const kernels::Params& params,
                                   AttentionMistake mistake = AttentionMistake::none);

/// The reference of an op of the family, or null if it is none.
Runner attention_runner(const std::string& op);

}  // namespace tessera::reference
