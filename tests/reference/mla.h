#pragma once
// Multi-head latent attention by definition: one row of q against entries of 64 a block, with the sums of the tensor
// cores of sm_90 and exact elementary functions. The values of an entry are the first 512 channels of its key.
//
// A row keeps its maximum m of raw scores, ms = m * c with c = scale * log2 e, 64 classes of partial sums l and its
// output o. It visits its blocks in ascending order:
//   x = the score; -inf where the row does not see the entry
//   m' = max(m, x ..), NaN if one is; ms' = m' * c; f = 2^(ms - ms')
//   p = 2^fma(x, c, -ms')
//   class (block mod 2, j mod 8, j div 16 mod 4): of this block's parity fma(l, f, first p), then l + p; of the other l * f
//   o = o * f, then o += round(p) v in steps of 16 entries
// A part is a run of blocks that starts anew. Parts are combined at once: M = the largest ms, f = 2^(ms - M), L = sum of
// fma(l, f, L) and O = sum of fma(o, f, O) from +0, parts ascending. out = round(fma(O, 1 / (L + 2^(sink * log2 e - M)), +0)).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/reference/ops.h"
#include "tests/reference/tensor_core.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Mistakes that the cases must catch.
enum class MlaMistake : uint8_t {
  none,
  large_negative,       // -1e30 for an entry that is not seen
  sums_rounded_p,       // l sums p as it is multiplied
  forgets_half,         // the second half of o is not rescaled
  forgets_parity,       // sums of the other parity are not rescaled
  drops_nan,            // a NaN score counts as -inf
  negative_zero,        // out is not cleared of -0
  top_left,             // the first token sees the first key
  last_block_unmasked,  // keys behind the end of a request count
  behind_length,        // keys behind the length are seen
  missing_page,         // keys of a page that does not exist are seen, as zeros
  pages_of_64,          // pages have 64 rows
  part_twice,           // the last part is combined twice
  forgets_part,         // the first of several parts is left out
  sink_in_lse,          // lse counts the sink
  sink_of_row,          // row r has sink r div (rows per head)
  adds_maxima,          // lse has the first part's maximum
  // In sparse_mla_fwd alone:
  counts_once,  // a repeated index counts once
  first_scale,  // all heads have the q_scale of the first
  // In sparse_mla_decode alone:
  forgets_second,     // the second list is left out
  first_cache,        // the indices of the second list are looked up in the first cache
  one_length,         // the second list has the length of the first
  length_of_token,    // token t has length t
  one_page_size,      // both caches have the page size of the first
  other_order,        // scales lie in the other order of bytes
  exchanges_nibbles,  // of e2m1 codes
  sink_per_part,      // each part has the sink
  // Those change no more than the last bits:
  no_parity,      // classes of both parities are one
  scaled_scores,  // scores times c, rounded, before the maximum
  backwards,      // parts are combined from right to left
  folds_parts,    // parts are joined one by one, as those of attention_decode
  unpadded,       // the second list begins right behind the first
};

/// Blocks of a row that start anew.
struct MlaPart {
  float ms = 0, l = 0;
  std::vector<uint32_t> o;  // f32
};

/// A row of `width` channels against entries, 64 a block; null: not seen.
MlaPart mla_part(const Number* q, int64_t width, std::span<const Number* const> entries, float c,
                 MlaMistake mistake = MlaMistake::none);

/// The output of a row and its lse.
struct MlaRow {
  std::vector<float> out;
  float lse;
};
MlaRow mla_combined(std::vector<MlaPart> parts, const float* sink,
                    MlaMistake mistake = MlaMistake::none);

test::HostTensors mla_decode(const test::HostTensors& in, const kernels::Params& params,
                             MlaMistake mistake = MlaMistake::none);
test::HostTensors mla_combine(const test::HostTensors& in, const kernels::Params& params,
                              MlaMistake mistake = MlaMistake::none);

test::HostTensors sparse_mla_fwd(const test::HostTensors& in, const kernels::Params& params,
                                 MlaMistake mistake = MlaMistake::none);

/// Caches are read by load_entry (cache_entry.h).
test::HostTensors sparse_mla_decode(const test::HostTensors& in, const kernels::Params& params,
                                    MlaMistake mistake = MlaMistake::none);
/// The rows that the indices of `list` choose, "" or "extra_", a row for each; zeros for those that are none. As sparse_mla_fwd
/// takes them.
test::HostTensor chosen_rows(const test::HostTensors& in, const kernels::Params& params,
                             const std::string& list);

/// The reference of an op with latent attention, or null if it is none.
Runner mla_runner(const std::string& op);

}  // namespace tessera::reference
