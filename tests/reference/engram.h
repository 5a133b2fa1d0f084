#pragma once
// The Engram ops by definition.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// weight_fused[h, i] = weight_hidden[h, i] * weight_embed[h, i], rounded once to f32.
///
///   weight_hidden, weight_embed   bf16 [hc, D]
///   returns                       f32 [hc, D]
test::HostTensor fused_weight(const test::HostTensor& weight_hidden,
                              const test::HostTensor& weight_embed);

/// The sum of the sizes before each table of its layer, in 32 wrapping bits.
///
///   vocab_sizes   i32 [L, N-1, J]
///   returns       i32 [L, (N-1) J]
///
/// Example: sizes {{{3, 4}, {5, 6}}} give {{0, 3, 7, 12}}.
test::HostTensor engram_make_offsets(const test::HostTensor& vocab_sizes);

/// out[l, t, (i - 1) J + j] = i32(h mod vocab[l, i - 1, j] + offset) with h the exclusive or of
/// id * multiplier over columns 0 .. i, in 64 wrapping bits; a size that is not positive gives the
/// offset.
///
///   ngram_token_ids   i32 [T, N]
///   multipliers       i64 [L, N]
///   vocab_sizes       i32 [L, N-1, J]
///   offsets           i32 [L, (N-1) J]
///   returns           i32 [L, T, (N-1) J]
test::HostTensor engram_hash(const test::HostTensor& ngram_token_ids,
                             const test::HostTensor& multipliers,
                             const test::HostTensor& vocab_sizes, const test::HostTensor& offsets);

/// out = x + g v with g the sigmoid of the signed root of the clamped score of each stream, in f64
/// from start to end, each result rounded once.
///
///   x, k           bf16 [.., hc, D]
///   v              bf16 [.., D]
///   weight_fused   f32 [hc, D]
struct EngramGate {
  test::HostTensor out;                              // bf16 [.., hc, D]
  test::HostTensor dot, gate_score, rstd_x, rstd_k;  // f32 [.., hc]
};
EngramGate engram_gate_fwd(const test::HostTensor& x, const test::HostTensor& k,
                           const test::HostTensor& v, const test::HostTensor& weight_fused,
                           double eps, double clamp_value);

}  // namespace tessera::reference
