#pragma once
// The inverse of a unit lower triangle of 64 rows.

#include "dsl/builder.h"

namespace tessera::kernels::linear {

/// `t` = (1 + L)^-1, where `lower` is the strictly lower triangle L, both f32 [64, 64] in shared memory. `t` has zeros above the
/// diagonal of its blocks [32, 32], but no elements above these blocks; `lower` is overwritten. Row r of `t` depends on rows up
/// to r of L. For blocks of four warps.
///
/// Diagonal blocks of 16 rows by substitution in f32, then 16 -> 32 -> 64 by two products each in tf32: T_hi,lo = -T_hi
/// (L_hi,lo T_lo).
void invert_triangle(dsl::Builder& k, const dsl::Ref& lower, const dsl::Ref& t);

}  // namespace tessera::kernels::linear
