#include "codegen/cuda/literal.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "dsl/base/error.h"

namespace tessera::codegen::cuda {
namespace {

/// An IEEE-like format: sign, exponent, fraction. Infinity and NaN are given by their bits.
struct Format {
  int exponent_bits;
  int fraction_bits;
  int bias;
  uint32_t infinity;  // 0: none
  uint32_t nan;
};

Format format_of(DType type) {
  switch (type) {
    case DType::f32:
      return {8, 23, 127, 0x7F800000u, 0x7FFFFFFFu};
    case DType::bf16:
      return {8, 7, 127, 0x7F80u, 0x7FFFu};
    case DType::f16:
      return {5, 10, 15, 0x7C00u, 0x7FFFu};
    case DType::e5m2:
      return {5, 2, 15, 0x7Cu, 0x7Fu};
    case DType::e4m3:
      return {4, 3, 7, 0, 0x7Fu};
    case DType::e2m1:
      return {2, 1, 1, 0, 0x7u};
    default:
      internal_error(fmt::format("{} is no float format", name(type)));
  }
}

}  // namespace

std::string_view type_name(DType type) {
  switch (type) {
    case DType::f64:
      return "double";
    case DType::f32:
      return "float";
    case DType::i32:
      return "int";
    case DType::boolean:
      return "bool";
    default:
      return name(type);
  }
}

bool is_builtin(DType type) {
  return type == DType::f64 || type == DType::f32 || type == DType::i32 || type == DType::boolean;
}

bool is_small_float(DType type) {
  return is_float(type) && bits(type) < 32;
}

std::string integer_literal(DType type, int64_t value, bool hex) {
  hex = hex || static_cast<uint64_t>(value) > 0xFFFF;
  switch (type) {
    case DType::boolean:
      return value != 0 ? "true" : "false";
    case DType::u32:
      return fmt::format(fmt::runtime(hex ? "0x{:X}u" : "{}u"), static_cast<uint32_t>(value));
    case DType::u64:
      return fmt::format(fmt::runtime(hex ? "0x{:X}ull" : "{}ull"), static_cast<uint64_t>(value));
    case DType::i64:
      if (value == std::numeric_limits<int64_t>::min()) return "(-9223372036854775807ll - 1)";
      return fmt::format("{}ll", value);
    default:
      if (value == std::numeric_limits<int32_t>::min()) return "(-2147483647 - 1)";
      return fmt::format("{}", value);
  }
}

std::string f32_literal(double value) {
  const auto narrow = static_cast<float>(value);
  if (!std::isfinite(value)) {
    return fmt::format("__uint_as_float(0x{:X}u)", float_bits(DType::f32, value));
  }
  TESSERA_CHECK(static_cast<double>(narrow) == value, fmt::format("{} is not exact in f32", value));
  std::string text = fmt::format("{}", narrow);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

std::string f64_literal(double value) {
  if (!std::isfinite(value)) {
    const uint64_t bits = std::isnan(value) ? 0x7FFFFFFFFFFFFFFFu : std::bit_cast<uint64_t>(value);
    return fmt::format("__longlong_as_double(0x{:X}ull)", bits);
  }
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

uint32_t float_bits(DType type, double value) {
  const Format format = format_of(type);
  const int sign_shift = format.exponent_bits + format.fraction_bits;
  if (std::isnan(value)) return format.nan;
  const uint32_t sign = std::signbit(value) ? 1u << sign_shift : 0u;
  if (std::isinf(value)) {
    TESSERA_CHECK(format.infinity != 0, fmt::format("{} has no infinity", name(type)));
    return sign | format.infinity;
  }
  if (value == 0) return sign;
  // In units of the last place of its binade, the value of a representable number is an integer.
  const int exponent = std::max(std::ilogb(value), 1 - format.bias);
  const double units = std::ldexp(std::fabs(value), format.fraction_bits - exponent);
  const auto significand = static_cast<uint32_t>(units);
  TESSERA_CHECK(static_cast<double>(significand) == units,
                fmt::format("{} is not exact in {}", value, name(type)));
  // A normal significand carries its leading one, which counts as one step of the exponent.
  const auto binade = static_cast<uint32_t>(exponent - (1 - format.bias));
  const uint32_t bits = (binade << format.fraction_bits) + significand;
  const uint32_t limit =
      format.infinity != 0 ? format.infinity : format.nan + (type == DType::e2m1);
  TESSERA_CHECK(bits < limit, fmt::format("{} is too large for {}", value, name(type)));
  return sign | bits;
}

std::string float_literal(DType type, double value) {
  if (type == DType::f32) return f32_literal(value);
  if (type == DType::f64) return f64_literal(value);
  const int digits = bits(type) / 4;
  return fmt::format("0x{:0{}X} /* {} */", float_bits(type, value), digits, value);
}

}  // namespace tessera::codegen::cuda
