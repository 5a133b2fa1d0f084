#pragma once
// The Engram ops by definition.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

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
