// Handles and operands: values, elements and literals.

#include "dsl/value.h"

#include <fmt/format.h>

#include <cmath>

#include "dsl/operands.h"

namespace tessera::dsl {
namespace {

bool exact(DType type, int64_t value) {
  switch (type) {
    case DType::i8:
      return value == static_cast<int8_t>(value);
    case DType::u8:
      return value == static_cast<uint8_t>(value);
    case DType::i16:
      return value == static_cast<int16_t>(value);
    case DType::u16:
      return value == static_cast<uint16_t>(value);
    case DType::i32:
      return value == static_cast<int32_t>(value);
    case DType::u32:
      return value == static_cast<uint32_t>(value);
    case DType::u64:
      return value >= 0;
    default:
      return true;
  }
}

/// True if the float dtype can represent the double (the wide dtypes have NaN and infinity).
bool exact(DType type, double value) {
  if (type == DType::f64) return true;
  const bool wide = type == DType::f32 || type == DType::f16 || type == DType::bf16;
  if (std::isnan(value) || std::isinf(value)) return wide || type == DType::e5m2;
  if (value == 0) return true;
  struct Format {
    int precision, min_exponent;
    double max;
  };
  Format f{};
  switch (type) {
    case DType::f32:
      f = {24, -149, 0x1.fffffep127};
      break;
    case DType::f16:
      f = {11, -24, 65504};
      break;
    case DType::bf16:
      f = {8, -133, 0x1.fep127};
      break;
    case DType::e4m3:
      f = {4, -9, 448};
      break;
    case DType::e5m2:
      f = {3, -16, 57344};
      break;
    default:
      f = {2, -1, 6};
      break;
  }
  int exponent = 0;
  std::frexp(value, &exponent);  // value = m * 2^exponent, 0.5 <= |m| < 1
  const int last_bit = std::max(exponent - f.precision, f.min_exponent);
  const double scaled = std::ldexp(value, -last_bit);
  return scaled == std::nearbyint(scaled) && std::fabs(value) <= f.max;
}

/// As C++ writes it: 0.1f, 2.0f.
std::string float_literal(double number) {
  std::string text = fmt::format("{}", static_cast<float>(number));
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text + "f";
}

std::string suffix_hint(double number) {
  return fmt::format("write it with the suffix f: {}", float_literal(number));
}

}  // namespace

Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;

Arg::Arg(const Arg& other) = default;
Arg::Arg(Arg&& other) noexcept = default;
Arg& Arg::operator=(const Arg& other) = default;
Arg& Arg::operator=(Arg&& other) noexcept = default;
Arg::~Arg() = default;
Arg::Arg(const Value& value, SourceLoc loc) : value_(value), loc_(loc) {
  if (!value.expr())
    operand_error(nullptr, "EMPTY_VALUE", "a default-constructed Value is used", loc);
}

Value Arg::value() const {
  switch (kind_) {
    case Kind::value:
      return value_;
    case Kind::boolean:
      return Value(nullptr, ir::constant(DType::boolean, integer_));
    case Kind::integer:
      return Value(nullptr, ir::index(integer_));
    case Kind::single:
    case Kind::floating:
      if (!exact(DType::f32, number_)) {
        operand_error(nullptr, "LITERAL", "a literal is not exact in f32", loc_, "an f32 value",
                      literal_text(), suffix_hint(number_));
      }
      return Value(nullptr, ir::float_constant(DType::f32, number_));
    case Kind::dimension:
      operand_error(nullptr, "ALL_VALUE", "k.all is used as a value", loc_, "a value",
                    "a whole dimension", "it stands in place of an index: x(k.all, column)");
  }
  return value_;
}

Value Arg::as(DType dtype, Recorder* recorder) const {
  if (is_all()) return value();
  if (kind_ == Kind::value) {
    if (value_.dtype() == dtype) return value_;
    if (value_.dtype() == DType::i32 && dtype == DType::i64) {
      return made(recorder, ir::cast(DType::i64, value_.expr(), loc_));
    }
    operand_error(recorder, "DTYPE", "a value has the wrong dtype", loc_, word(dtype),
                  word(value_.dtype()),
                  fmt::format("convert it with cast(DType::{}, value)",
                              dtype == DType::boolean ? "boolean" : name(dtype)));
  }
  const double number = is_floating() ? number_ : static_cast<double>(integer_);
  if (fits(dtype)) {
    if (dtype == DType::boolean) return value();
    return Value(recorder, is_float(dtype) ? ir::float_constant(dtype, number)
                                           : ir::constant(dtype, integer_));
  }
  std::string hint;
  if (is_floating() && dtype == DType::f32) {
    hint = suffix_hint(number);
  } else if (is_floating() && is_float(dtype)) {
    hint = fmt::format("compute in f32: f32(value) and {}; dsl::cast(DType::{}, {}) rounds",
                       float_literal(number), name(dtype), float_literal(number));
  } else if (is_floating() && dtype != DType::boolean) {
    hint = number == std::trunc(number)
               ? fmt::format("write {:.0f}, or compute in f32: f32(value) and {}", number,
                             float_literal(number))
               : fmt::format("compute in f32: f32(value) and {}", float_literal(number));
  } else if (dtype == DType::boolean) {
    hint = "write a comparison: value != 0";
  } else if (kind_ == Kind::integer && is_float(dtype)) {
    hint = fmt::format("dsl::cast(DType::{}, {}) rounds", name(dtype), integer_);
  }
  operand_error(recorder, "LITERAL", fmt::format("a literal is no value of {}", word(dtype)), loc_,
                word(dtype), literal_text(), std::move(hint));
}

bool Arg::fits(DType dtype) const {
  if (kind_ == Kind::value || is_all()) return false;
  if (kind_ == Kind::boolean || dtype == DType::boolean) {
    return kind_ == Kind::boolean && dtype == DType::boolean;
  }
  if (is_float(dtype)) {
    return exact(dtype, is_floating() ? number_ : static_cast<double>(integer_));
  }
  return kind_ == Kind::integer && exact(dtype, integer_);
}

std::string Arg::literal_text() const {
  switch (kind_) {
    case Kind::boolean:
      return fmt::format("the boolean {}", integer_ != 0);
    case Kind::integer:
      return fmt::format("the integer {}", integer_);
    case Kind::single:
      return "the float " + float_literal(number_);
    case Kind::floating:
      return fmt::format("the double {}", number_);
    case Kind::dimension:
      return "k.all";
    case Kind::value:
      break;
  }
  return {};
}

}  // namespace tessera::dsl
