#pragma once
// The arithmetic of the executor: tight loops over columns. A column holds one value per thread in
// the native storage of its dtype: float for f32, bits for narrower floats, a byte 0 or 1 for
// booleans.

#include <cstdint>

#include "dsl/ir/expr.h"

namespace tessera::codegen::cpu {

/// out[i] = f(a[i], b[i], c[i]) for i in [0, count). Ignores arguments beyond those of f. `out`
/// overlaps no argument.
using ColumnOp = void (*)(void* out, const void* a, const void* b, const void* c, int64_t count);

/// Finds the loop of `op` on arguments of `type`; null if the dtype has no such op. Covers
/// everything except constant, var, cast, bitcast and select. Shift amounts are 32 bits wide, read
/// as unsigned.
///   Example: find_op(ir::Op::lt, DType::i32) compares two i32 columns into a boolean column.
ColumnOp find_op(ir::Op op, DType type);

/// max(a[i], |b[i]|) of f16 or bf16.
ColumnOp find_max_of_magnitude(DType type);

/// Finds the loop of a cast. Every pair has one: between float formats through f32 with one
/// rounding, from integers to narrow floats with one rounding, from floats to integers by
/// truncation and saturation (NaN to 0).
ColumnOp find_conversion(DType from, DType to);

/// out = a (boolean) ? b : c, values of `bytes` bytes moved unchanged.
ColumnOp find_select(int bytes);

/// Parts of find_op.
ColumnOp find_float_op(ir::Op op, DType type);
ColumnOp find_integer_op(ir::Op op, DType type);
ColumnOp find_boolean_op(ir::Op op);

}  // namespace tessera::codegen::cpu
