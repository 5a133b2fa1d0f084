#pragma once
// Element types and their names in files, on the command line and in generated code.

#include <cstdint>
#include <optional>
#include <string_view>

#include "dsl/base/api.h"

namespace tessera {

enum class DType : uint8_t {
  f32,
  f16,
  bf16,
  e4m3,  // 8-bit float, no infinity, NaN = 0x7F / 0xFF, max 448
  e5m2,  // 8-bit float with infinity
  e2m1,  // 4-bit float, two per byte in memory, the even element in the low nibble
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  boolean,  // one byte, 0 or 1
  f64,      // for references and optimizers: plain arithmetic, no matrix products
};
/// Number of dtypes.
inline constexpr int kNumDTypes = 16;

/// "f32", "bf16", "bool", ...: the dtype words of the op tables.
TESSERA_API std::string_view name(DType dtype);
TESSERA_API std::optional<DType> dtype_from_name(std::string_view word);

/// Bits of one element in memory: 4 for e2m1, else a multiple of 8.
TESSERA_API int bits(DType dtype);
/// Bytes of one element; e2m1 counts as one byte (registers hold one code per byte).
TESSERA_API int bytes(DType dtype);

/// The kind of number.
TESSERA_API bool is_float(DType dtype);
TESSERA_API bool is_integer(DType dtype);  // boolean is neither
TESSERA_API bool is_signed(DType dtype);   // signed integers and all floats

}  // namespace tessera
