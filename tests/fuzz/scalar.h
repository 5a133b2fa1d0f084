#pragma once
// Values of the naive interpreter and the arithmetic of the language on them, written from its
// description.

#include <cstdint>

#include "dsl/ir/expr.h"

namespace tessera::test {

/// An integer, a boolean or a float, whichever the dtype beside it says.
struct Scalar {
  int64_t integer = 0;  // u64 as two's complement
  double number = 0;
};

/// `value` in the range and precision of `type`: integers wrap, floats round to nearest even.
Scalar normalised(DType type, Scalar value);
Scalar converted(DType to, DType from, Scalar value);
/// One operation whose arguments have dtype `type` and whose result has dtype `result`. Throws
/// std::logic_error for an operation it does not know.
Scalar apply(ir::Op op, DType type, DType result, const Scalar* arguments);

/// The bits of one element in memory, and back.
Scalar scalar_of_bits(DType type, uint64_t bits);
uint64_t bits_of_scalar(DType type, Scalar value);

}  // namespace tessera::test
