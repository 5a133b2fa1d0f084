#include "dsl/base/dtype.h"

#include <algorithm>
#include <array>

namespace tessera {
namespace {

struct Row {
  std::string_view name;
  int bits;
  enum Kind { kFloat, kSigned, kUnsigned, kBool } kind;
};

constexpr std::array<Row, kNumDTypes + 1> kRows = {{
    {"f32", 32, Row::kFloat},
    {"f16", 16, Row::kFloat},
    {"bf16", 16, Row::kFloat},
    {"e4m3", 8, Row::kFloat},
    {"e5m2", 8, Row::kFloat},
    {"e2m1", 4, Row::kFloat},
    {"i8", 8, Row::kSigned},
    {"u8", 8, Row::kUnsigned},
    {"i16", 16, Row::kSigned},
    {"u16", 16, Row::kUnsigned},
    {"i32", 32, Row::kSigned},
    {"u32", 32, Row::kUnsigned},
    {"i64", 64, Row::kSigned},
    {"u64", 64, Row::kUnsigned},
    {"bool", 8, Row::kBool},
    {"f64", 64, Row::kFloat},
    {"no dtype", 8, Row::kBool},  // for a value outside the enum
}};

const Row& row(DType dtype) {
  return kRows[std::min<size_t>(static_cast<size_t>(dtype), kNumDTypes)];
}

}  // namespace

std::string_view name(DType dtype) {
  return row(dtype).name;
}

std::optional<DType> dtype_from_name(std::string_view word) {
  for (size_t i = 0; i < size_t{kNumDTypes}; ++i) {
    if (kRows[i].name == word) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int bits(DType dtype) {
  return row(dtype).bits;
}
int bytes(DType dtype) {
  return (bits(dtype) + 7) / 8;
}
bool is_float(DType dtype) {
  return row(dtype).kind == Row::kFloat;
}
bool is_integer(DType dtype) {
  return row(dtype).kind == Row::kSigned || row(dtype).kind == Row::kUnsigned;
}
bool is_signed(DType dtype) {
  return row(dtype).kind <= Row::kSigned;
}

}  // namespace tessera
