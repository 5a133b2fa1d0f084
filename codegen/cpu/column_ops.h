#pragma once
// The arithmetic of the executor: tight loops over columns. A column holds one value per thread in
// the native storage of its dtype: float for f32, the bits for narrower floats, 0 or 1 in a byte
// for booleans.

#include <cstdint>

#include "dsl/ir/expr.h"

namespace tessera::codegen::cpu {

/// out[i] = f(a[i], b[i], c[i]) for i in [0, count). Arguments that f has not are ignored. `out`
/// overlaps no argument.
using ColumnOp = void (*)(void* out, const void* a, const void* b, const void* c, int64_t count);

/// The loop of `op` on arguments of `type`; null if the op is not defined for that dtype. Covers
/// everything except constant, var, cast, bitcast and select. Shift amounts are 32 bits wide, read
/// as unsigned.
///   Example: find_op(ir::Op::lt, DType::i32) compares two i32 columns into a boolean column.
ColumnOp find_op(ir::Op op, DType type);

/// max(a[i], |b[i]|) of f16 or bf16.
ColumnOp find_max_of_magnitude(DType type);

/// The loop of a cast. Defined for every pair: between float formats through f32 with one rounding,
/// from integers to narrow floats with one rounding of the integer, from floats to integers by
/// truncation and saturation (NaN to 0).
ColumnOp find_conversion(DType from, DType to);

/// out = a (boolean) ? b : c, values of `bytes` bytes moved unchanged.
ColumnOp find_select(int bytes);

/// The parts of find_op.
ColumnOp find_float_op(ir::Op op, DType type);
ColumnOp find_integer_op(ir::Op op, DType type);
ColumnOp find_boolean_op(ir::Op op);

}  // namespace tessera::codegen::cpu
