#pragma once
// What the operations of the language do with integers and booleans: one meaning for what folds
// constants, what proves, what the host computes and what the executor runs.
//
// Integers wrap. Shifts by the width or more give 0 or the sign. A division by zero gives all ones and
// leaves the dividend as remainder, as the GPU does.

#include <cstdint>
#include <optional>

#include "dsl/ir/expr.h"

namespace tessera::ir {

/// `value` as an integer or boolean dtype keeps it; u64 in two's complement.
///
///   wrap(DType::i8, 200) == -56
int64_t wrap(DType type, int64_t value);

/// True if the dtype has the value. u64: only what is below 2^63.
bool fits(DType type, int64_t value);

/// A comparison, whose result is boolean whatever its arguments are.
bool is_comparison(Op op);

/// An operation of two arguments of dtype `type` as the machine does it; nothing for operations that
/// integers do not have.
///
///   compute(Op::add, DType::i32, INT32_MAX, 1) == INT32_MIN
std::optional<int64_t> compute(Op op, DType type, int64_t a, int64_t b);

/// The same operation on mathematical integers: nothing for a division by zero, for shifts and mulhi, and for a
/// result that `type` does not have. u64: nothing from 2^63 on.
///
///   compute_exactly(Op::add, DType::i32, INT32_MAX, 1) == std::nullopt
std::optional<int64_t> compute_exactly(Op op, DType type, int64_t a, int64_t b);

}  // namespace tessera::ir
