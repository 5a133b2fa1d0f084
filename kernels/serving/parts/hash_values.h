#pragma once
// The value requirements of hash_gate, checked on CPU tensors and reported by its kernel.

#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

/// Requires of the tokens that count: ids inside the table, existing experts, finite logits.
void require_hashed(const Call& c);

/// The part of it that needs no logits: ids and experts.
void require_known(const Call& c);

/// How many of the T rows of a call on CPU tensors count: `num_tokens`, or all without it.
int64_t rows_that_count(const Call& c);

}  // namespace tessera::kernels::serving
