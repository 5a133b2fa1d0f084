#pragma once
// What hash_gate asks of the values of its inputs, checked on CPU tensors and reported by its kernel.

#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// Of the tokens that count: their ids lie in the table, which names experts, whose logits are finite.
void require_hashed(const Call& c);

/// How many of the T rows of a call on CPU tensors count; all of them without `num_tokens`.
int64_t rows_that_count(const Call& c);

}  // namespace tessera::kernels::serving
