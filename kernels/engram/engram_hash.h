#pragma once
// Rows of the hashed embedding tables for the last token ids of each position.

#include "kernels/op.h"

namespace tessera::kernels {

/// Hashes the first i + 1 ids of each position for every order i = 1 .. ngram - 1, and gives the row
/// of each of `tables` tables per order: out = h mod vocab_size + offset, h being the exclusive or of
/// id * multiplier, wrapping in 64 bits. C = (ngram - 1) * tables.
///
///   ngram_token_ids   i32 [tokens, ngram]            any values
///   multipliers       i64 [layers, ngram]
///   vocab_sizes       i32 [layers, ngram - 1, tables]
///   offsets           i32 [layers, C]
///   out               i32 [layers, tokens, C]        the sum wraps in 32 bits
///
/// All contiguous. A vocabulary size that is not positive gives the offset alone.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees; on CPU tensors also for
///          a vocabulary size below 1.
/// Example: engram_hash(ngram_token_ids, multipliers, vocab_sizes, offsets, out, stream);
void engram_hash(const TensorView& ngram_token_ids, const TensorView& multipliers,
                 const TensorView& vocab_sizes, const TensorView& offsets, const TensorView& out,
                 Stream stream);

const OpInfo& engram_hash_op();

}  // namespace tessera::kernels
