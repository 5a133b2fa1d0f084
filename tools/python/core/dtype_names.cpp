#include "tools/python/core/dtype_names.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "dsl/base/error.h"

namespace tessera::python {
namespace {

constexpr std::array<std::pair<DType, const char*>, 15> kNames = {{{DType::f32, "float32"},
                                                                   {DType::f16, "float16"},
                                                                   {DType::bf16, "bfloat16"},
                                                                   {DType::e4m3, "float8_e4m3fn"},
                                                                   {DType::e5m2, "float8_e5m2"},
                                                                   {DType::i8, "int8"},
                                                                   {DType::u8, "uint8"},
                                                                   {DType::i16, "int16"},
                                                                   {DType::u16, "uint16"},
                                                                   {DType::i32, "int32"},
                                                                   {DType::u32, "uint32"},
                                                                   {DType::i64, "int64"},
                                                                   {DType::u64, "uint64"},
                                                                   {DType::boolean, "bool"},
                                                                   {DType::f64, "float64"}}};

}  // namespace

const char* library_name(DType dtype) {
  for (const auto& [word, name] : kNames) {
    if (word == dtype) return name;
  }
  internal_error(fmt::format("no library has a type of {}", name(dtype)));
}

std::optional<DType> dtype_named(std::string_view text) {
  for (const auto& [word, name] : kNames) {
    if (text == name) return word;
  }
  return std::nullopt;
}

}  // namespace tessera::python
