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
///   image_token_mask  bool [T]; null: no token is of an image. Those that are have -1 everywhere
///   returns           i32 [L, T, (N-1) J]
test::HostTensor engram_hash(const test::HostTensor& ngram_token_ids,
                             const test::HostTensor& multipliers,
                             const test::HostTensor& vocab_sizes, const test::HostTensor& offsets,
                             const test::HostTensor* image_token_mask = nullptr);

/// Column i of row r is the id i rows before it, if its request has that row; else the id of the request's
/// `history`, whose last column is the id before its first row; else pad. Row r belongs to request b with
/// row_start[b] <= r < row_start[b + 1]; a row of none, and a request whose rows do not ascend, is padding.
/// next_history: the last ids of history and rows of each request.
///
///   token_ids       i32|i64 [T]
///   row_start       i32 [B + 1]
///   history         i32 [B, ngram - 1]; null: none
struct NgramIds {
  test::HostTensor ids, next_history;  // i32 [T, ngram], [B, ngram - 1]
};
NgramIds engram_ngram_ids(const test::HostTensor& token_ids, const test::HostTensor& row_start,
                          const test::HostTensor* history, int64_t ngram, int64_t pad);

/// Row engram_hash of one layer of the table, for each entry of each token; 0 where the table does not have
/// all rows of a size behind its offset.
///
///   multipliers     i64 [N]
///   vocab_sizes     i32 [N-1, J]
///   offsets         i32 [(N-1) J]
///   table           bf16|f32 [V, D]
///   returns         as table [T, (N-1) J D]
test::HostTensor engram_embed(const test::HostTensor& ngram_token_ids,
                              const test::HostTensor& multipliers,
                              const test::HostTensor& vocab_sizes, const test::HostTensor& offsets,
                              const test::HostTensor& table);

/// out = x + g v with g the sigmoid of the signed root of the clamped score of each stream, in f64
/// from start to end, each result rounded once.
///
///   x, k           bf16 [.., hc, D]
///   v              bf16 [.., D]
///   weight_fused   f32 [hc, D]
///   image_token_mask  bool [..]; null: no token is of an image. Those that are keep the bits of x, and
///                     save 0
struct EngramGate {
  test::HostTensor out;                              // bf16 [.., hc, D]
  test::HostTensor dot, gate_score, rstd_x, rstd_k;  // f32 [.., hc]
};
EngramGate engram_gate_fwd(const test::HostTensor& x, const test::HostTensor& k,
                           const test::HostTensor& v, const test::HostTensor& weight_fused,
                           double eps, double clamp_value,
                           const test::HostTensor* image_token_mask = nullptr);

}  // namespace tessera::reference
