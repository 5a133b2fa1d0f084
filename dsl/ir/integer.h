#pragma once
// Semantics of integer and boolean operations, shared by constant folding, the prover, the host and
// the executor.
//
// Integers wrap. Shifts by the width or more give 0 or the sign. A division by zero gives all ones and
// leaves the dividend as remainder, as the GPU does.

#include <cstdint>
#include <optional>

#include "dsl/ir/expr.h"

namespace tessera::ir {

/// Wraps `value` to an integer or boolean dtype; u64 in two's complement.
///
///   wrap(DType::i8, 200) == -56
int64_t wrap(DType type, int64_t value);

/// True if the dtype can represent the value. u64: only below 2^63.
bool fits(DType type, int64_t value);

/// True for comparisons; their result is boolean.
bool is_comparison(Op op);

/// Computes an operation on two arguments of dtype `type` as the machine does; nothing for
/// operations that integers lack.
///
///   compute(Op::add, DType::i32, INT32_MAX, 1) == INT32_MIN
std::optional<int64_t> compute(Op op, DType type, int64_t a, int64_t b);

/// Computes the operation on mathematical integers: nothing for a division by zero, for shifts and mulhi, and
/// for a result that `type` cannot represent. u64: nothing from 2^63 on.
///
///   compute_exactly(Op::add, DType::i32, INT32_MAX, 1) == std::nullopt
std::optional<int64_t> compute_exactly(Op op, DType type, int64_t a, int64_t b);

}  // namespace tessera::ir
