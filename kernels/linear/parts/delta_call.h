#pragma once
// Parts of the calls of the gated delta rule.

#include "dsl/builder.h"
#include "kernels/signature/call.h"

namespace tessera::kernels::linear {

/// The scale is finite and above 0, in f32 too. Errors: argument.
void require_scale(const Call& c);

/// True if the last dimension of a pool [slots, heads, dk, dv] that steps by one element is dk.
bool has_keys_last(const TensorView& pool);

/// log2 of the decay of a token whose natural logarithm is g, at least -128: -infinity and what is near it are one value,
/// whose differences are no NaN. A NaN stays.
dsl::Value log2_decay(const dsl::Value& g);
/// 2^log, +0 where that is subnormal: on a GPU it is so, the executor has subnormal numbers.
dsl::Value decay_of(const dsl::Value& log);

}  // namespace tessera::kernels::linear
