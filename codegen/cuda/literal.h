#pragma once
// Constants of the IR as C++ literals that denote exactly the same value.

#include <cstdint>
#include <string>
#include <string_view>

#include "dsl/base/dtype.h"

namespace tessera::codegen::cuda {

/// The type's name in generated text: "float", "int", "bool", else the dtype word ("bf16", "i64").
std::string_view type_name(DType type);

/// f32, i32 and bool need no declaration, every other name is that of a device type.
bool is_builtin(DType type);

/// True for the floats which generated text holds as bits: f16, bf16, e4m3, e5m2, e2m1.
bool is_small_float(DType type);

/// "7", "7u", "7ll", "true"; unsigned values above 65535, or with `hex`, as bit patterns. The least
/// integers are parenthesised subtractions, because C++ has no literal for them.
std::string integer_literal(DType type, int64_t value, bool hex = false);

/// f32: the shortest decimal that gives the same bits ("0.1f", "448.0f"); NaN and infinities by
/// their bits.
std::string f32_literal(double value);
std::string f64_literal(double value);

/// The bits of `value`, which must be exact in `type`; NaN is the format's canonical one.
uint32_t float_bits(DType type, double value);

/// f32 as above, the small floats as bits with the value beside them: "0x3F80 /* 1 */".
std::string float_literal(DType type, double value);

}  // namespace tessera::codegen::cuda
