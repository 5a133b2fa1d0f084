// Typed expressions: operands, dtype rules, operators and functions.

#include "dsl/value.h"

#include <fmt/format.h>

#include <cmath>

#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

[[noreturn]] void fail(Recorder* recorder, const char* code, std::string what, SourceLoc loc,
                       std::string expected = {}, std::string got = {}, std::string hint = {}) {
  ErrorFields fields;
  fields.kind = ErrorKind::program;
  if (recorder != nullptr) fields.op = recorder->kernel.name;
  fields.code = code;
  fields.what = std::move(what);
  fields.expected = std::move(expected);
  fields.got = std::move(got);
  fields.hint = std::move(hint);
  fields.loc = loc;
  throw Error(std::move(fields));
}

/// The result of an operation of the author's.
Value made(Recorder* recorder, ir::Expr e) {
  if (recorder != nullptr) recorder->check_size(e);
  return Value(recorder, std::move(e));
}

std::string word(DType type) {
  return std::string(name(type));
}

Recorder* recorder_of(const Arg& a, const Arg& b) {
  return a.recorder() != nullptr ? a.recorder() : b.recorder();
}

bool is_i32_or_i64(DType type) {
  return type == DType::i32 || type == DType::i64;
}

/// Both operands with one dtype: a literal takes the other's, i32 widens to i64.
std::pair<Value, Value> unify(const Arg& a, const Arg& b, const char* what) {
  Recorder* recorder = recorder_of(a, b);
  if (a.is_literal() && !b.is_literal()) return {a.as(b.value().dtype(), recorder), b.value()};
  if (b.is_literal() && !a.is_literal()) return {a.value(), b.as(a.value().dtype(), recorder)};
  Value x = a.value();
  Value y = b.value();
  if (x.dtype() != y.dtype()) {
    if (is_i32_or_i64(x.dtype()) && is_i32_or_i64(y.dtype())) {
      return {a.as(DType::i64, recorder), b.as(DType::i64, recorder)};
    }
    fail(recorder, "DTYPE", fmt::format("operands of '{}' have different dtypes", what), b.loc(),
         word(x.dtype()), word(y.dtype()), "convert one of them with cast(dtype, value)");
  }
  return {x, y};
}

enum class Domain { number, integer, floating, boolean, any };

void require(Domain domain, const Value& value, const char* what, SourceLoc loc,
             Recorder* recorder) {
  const DType type = value.dtype();
  // 8-bit and 4-bit floats are storage formats: arithmetic goes through f32.
  const bool wide_float = type == DType::f32 || type == DType::f16 || type == DType::bf16;
  bool fits = true;
  std::string expected;
  switch (domain) {
    case Domain::number:
      fits = is_integer(type) || wide_float;
      expected = "an integer, f32, f16 or bf16";
      break;
    case Domain::integer:
      fits = is_integer(type);
      expected = "an integer";
      break;
    case Domain::floating:
      fits = wide_float;
      expected = "f32, f16 or bf16";
      break;
    case Domain::boolean:
      fits = type == DType::boolean;
      expected = "bool";
      break;
    case Domain::any:
      break;
  }
  if (!fits) {
    fail(recorder, "DTYPE", fmt::format("operand of '{}' has the wrong dtype", what), loc, expected,
         word(type), is_float(type) ? "convert it with f32(value)" : "");
  }
}

Value arithmetic(ir::Op op, const Arg& a, const Arg& b, const char* what, Domain domain) {
  auto [x, y] = unify(a, b, what);
  Recorder* recorder = recorder_of(a, b);
  require(domain, x, what, a.loc(), recorder);
  if ((op == ir::Op::div || op == ir::Op::mod) && ir::is_constant(y.expr(), 0)) {
    fail(recorder, "DIV_BY_ZERO", fmt::format("'{}' by the constant 0", what), b.loc());
  }
  return made(recorder, ir::binary(op, x.expr(), y.expr(), a.loc()));
}

Value logical(ir::Op op, const Arg& a, const Arg& b, const char* what) {
  Recorder* recorder = recorder_of(a, b);
  const Value x = a.value();
  const Value y = b.value();
  require(Domain::boolean, x, what, a.loc(), recorder);
  require(Domain::boolean, y, what, b.loc(), recorder);
  return made(recorder, ir::binary(op, x.expr(), y.expr(), a.loc()));
}

Value shift(ir::Op op, const Arg& a, const Arg& amount, const char* what) {
  Recorder* recorder = recorder_of(a, amount);
  const Value x = a.value();
  require(Domain::integer, x, what, a.loc(), recorder);
  const Value y = amount.is_literal() ? amount.as(DType::u32, recorder) : amount.value();
  if (y.dtype() != DType::u32 && y.dtype() != DType::i32) {
    fail(recorder, "DTYPE", fmt::format("the amount of '{}' has the wrong dtype", what),
         amount.loc(), "i32 or u32", word(y.dtype()));
  }
  return made(recorder, ir::binary(op, x.expr(), y.expr(), a.loc()));
}

Value function(ir::Op op, const Arg& a, const char* what, Domain domain) {
  const Value x = a.value();
  require(domain, x, what, a.loc(), a.recorder());
  return made(a.recorder(), ir::unary(op, x.expr(), a.loc()));
}

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

/// True if a double is a value of the float dtype (NaN and infinity are values of the wide ones).
bool exact(DType type, double value) {
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
  if (!value.expr()) fail(nullptr, "EMPTY_VALUE", "a default-constructed Value is used", loc);
}
Arg::Arg(const Ref& element, SourceLoc loc) : value_(element.read(loc)), loc_(loc) {}

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
        fail(nullptr, "LITERAL", "a literal is not exact in f32", loc_, "an f32 value",
             literal_text(), suffix_hint(number_));
      }
      return Value(nullptr, ir::float_constant(DType::f32, number_));
  }
  return value_;
}

Value Arg::as(DType dtype, Recorder* recorder) const {
  if (kind_ == Kind::value) {
    if (value_.dtype() == dtype) return value_;
    if (value_.dtype() == DType::i32 && dtype == DType::i64) {
      return made(recorder, ir::cast(DType::i64, value_.expr(), loc_));
    }
    fail(recorder, "DTYPE", "a value has the wrong dtype", loc_, word(dtype), word(value_.dtype()),
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
  fail(recorder, "LITERAL", fmt::format("a literal is no value of {}", word(dtype)), loc_,
       word(dtype), literal_text(), std::move(hint));
}

bool Arg::fits(DType dtype) const {
  if (kind_ == Kind::value) return false;
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
    case Kind::value:
      break;
  }
  return {};
}

using ir::Op;
Value operator+(const Arg& a, const Arg& b) {
  return arithmetic(Op::add, a, b, "+", Domain::number);
}
Value operator-(const Arg& a, const Arg& b) {
  return arithmetic(Op::sub, a, b, "-", Domain::number);
}
Value operator*(const Arg& a, const Arg& b) {
  return arithmetic(Op::mul, a, b, "*", Domain::number);
}
Value operator/(const Arg& a, const Arg& b) {
  return arithmetic(Op::div, a, b, "/", Domain::number);
}
Value operator%(const Arg& a, const Arg& b) {
  return arithmetic(Op::mod, a, b, "%", Domain::integer);
}
Value operator-(const Arg& a) {
  return function(Op::neg, a, "-", Domain::number);
}
Value operator&(const Arg& a, const Arg& b) {
  return arithmetic(Op::bit_and, a, b, "&", Domain::integer);
}
Value operator|(const Arg& a, const Arg& b) {
  return arithmetic(Op::bit_or, a, b, "|", Domain::integer);
}
Value operator^(const Arg& a, const Arg& b) {
  return arithmetic(Op::bit_xor, a, b, "^", Domain::integer);
}
Value operator<<(const Arg& a, const Arg& amount) {
  return shift(Op::shl, a, amount, "<<");
}
Value operator>>(const Arg& a, const Arg& amount) {
  return shift(Op::shr, a, amount, ">>");
}
Value operator<(const Arg& a, const Arg& b) {
  return arithmetic(Op::lt, a, b, "<", Domain::number);
}
Value operator<=(const Arg& a, const Arg& b) {
  return arithmetic(Op::le, a, b, "<=", Domain::number);
}
Value operator>(const Arg& a, const Arg& b) {
  return arithmetic(Op::lt, b, a, ">", Domain::number);
}
Value operator>=(const Arg& a, const Arg& b) {
  return arithmetic(Op::le, b, a, ">=", Domain::number);
}
Value operator==(const Arg& a, const Arg& b) {
  return arithmetic(Op::eq, a, b, "==", Domain::number);
}
Value operator!=(const Arg& a, const Arg& b) {
  return arithmetic(Op::ne, a, b, "!=", Domain::number);
}
Value operator&&(const Arg& a, const Arg& b) {
  return logical(Op::logical_and, a, b, "&&");
}
Value operator||(const Arg& a, const Arg& b) {
  return logical(Op::logical_or, a, b, "||");
}
Value operator!(const Arg& a) {
  return function(Op::logical_not, a, "!", Domain::boolean);
}

Value max(const Arg& a, const Arg& b) {
  return arithmetic(Op::max, a, b, "max", Domain::number);
}
Value min(const Arg& a, const Arg& b) {
  return arithmetic(Op::min, a, b, "min", Domain::number);
}
namespace {

Value propagate_nan(const Arg& a, const Arg& b, const char* what, const Value& number) {
  auto [x, y] = unify(a, b, what);
  require(Domain::floating, x, what, a.loc(), recorder_of(a, b));
  // The sum with a NaN is the canonical NaN.
  const Arg first(x, a.loc());
  const Arg second(y, b.loc());
  return select(is_nan(first) || is_nan(second), first + second, number);
}

}  // namespace

Value max_nan(const Arg& a, const Arg& b) {
  return propagate_nan(a, b, "max_nan", max(a, b));
}
Value min_nan(const Arg& a, const Arg& b) {
  return propagate_nan(a, b, "min_nan", min(a, b));
}
Value abs(const Arg& a) {
  return function(Op::abs, a, "abs", Domain::number);
}

Value fma(const Arg& a, const Arg& b, const Arg& c) {
  Recorder* recorder = recorder_of(a, b);
  if (recorder == nullptr) recorder = c.recorder();
  const Value x = a.as(DType::f32, recorder);
  const Value y = b.as(DType::f32, recorder);
  const Value z = c.as(DType::f32, recorder);
  return made(recorder, ir::call(Op::fma, DType::f32, {x.expr(), y.expr(), z.expr()}, a.loc()));
}

Value sqrt(const Arg& a) {
  return function(Op::sqrt, a, "sqrt", Domain::floating);
}
Value rsqrt(const Arg& a) {
  return function(Op::rsqrt, a, "rsqrt", Domain::floating);
}
Value round_tf32(const Arg& a) {
  const Value x = a.as(DType::f32, a.recorder());
  return made(a.recorder(), ir::unary(Op::round_tf32, x.expr(), a.loc()));
}
Value f16x2_toward_zero(const Arg& high, const Arg& low) {
  Recorder* recorder = recorder_of(high, low);
  const Value x = high.as(DType::f32, recorder);
  const Value y = low.as(DType::f32, recorder);
  return made(recorder,
              ir::call(Op::f16x2_toward_zero, DType::u32, {x.expr(), y.expr()}, high.loc()));
}
Value exp(const Arg& a) {
  return function(Op::exp, a, "exp", Domain::floating);
}
Value silu(const Arg& a) {
  const Value x = a.as(DType::f32, a.recorder());
  return made(a.recorder(), ir::unary(Op::silu, x.expr(), a.loc()));
}
Value log1p(const Arg& a) {
  return function(Op::log1p, a, "log1p", Domain::floating);
}
Value tanh(const Arg& a) {
  return function(Op::tanh, a, "tanh", Domain::floating);
}
Value copysign(const Arg& magnitude, const Arg& sign) {
  return arithmetic(Op::copysign, magnitude, sign, "copysign", Domain::floating);
}
Value is_nan(const Arg& a) {
  return function(Op::is_nan, a, "is_nan", Domain::floating);
}
Value is_inf(const Arg& a) {
  return function(Op::is_inf, a, "is_inf", Domain::floating);
}
Value popcount(const Arg& a) {
  const Value x = a.value();
  if (x.dtype() != DType::u32 && x.dtype() != DType::u64) {
    fail(a.recorder(), "DTYPE", "operand of 'popcount' has the wrong dtype", a.loc(), "u32 or u64",
         word(x.dtype()));
  }
  return function(Op::popcount, a, "popcount", Domain::integer);
}

Value select(const Arg& condition, const Arg& then, const Arg& otherwise) {
  const Value test = condition.value();
  require(Domain::boolean, test, "select", condition.loc(), condition.recorder());
  auto [x, y] = unify(then, otherwise, "select");
  Recorder* recorder = condition.recorder();
  if (recorder == nullptr) recorder = recorder_of(then, otherwise);
  return made(recorder, ir::select(test.expr(), x.expr(), y.expr(), condition.loc()));
}

Value cast(DType dtype, const Arg& a) {
  if (a.fits(dtype)) return a.as(dtype, nullptr);
  return made(a.recorder(), ir::cast(dtype, a.value().expr(), a.loc()));
}

Value reinterpret(DType dtype, const Arg& a) {
  const Value x = a.value();
  if (bits(x.dtype()) != bits(dtype)) {
    fail(a.recorder(), "DTYPE", "reinterpret needs a dtype of the same width", a.loc(),
         fmt::format("{} bits", bits(x.dtype())),
         fmt::format("{} ({} bits)", name(dtype), bits(dtype)));
  }
  return made(a.recorder(), ir::bitcast(dtype, x.expr(), a.loc()));
}

Value floor_mod(const Arg& a, const Arg& b) {
  const Value rest = a % b;
  const Arg divisor(unify(a, b, "floor_mod").second, b.loc());
  return select(rest != 0 && (rest ^ divisor) < 0, rest + divisor, rest);
}

Value floor_div(const Arg& a, const Arg& b) {
  const Value quotient = a / b;
  const Value rest = a % b;
  const Arg divisor(unify(a, b, "floor_div").second, b.loc());
  return select(rest != 0 && (rest ^ divisor) < 0, quotient - 1, quotient);
}

Value ceil_div(const Arg& a, int64_t b) {
  if (b <= 0) {
    fail(a.recorder(), "DIV_BY_ZERO", "ceil_div by a constant that is not positive", a.loc(),
         "a positive constant", fmt::format("{}", b));
  }
  if (a.is_literal()) return Value(nullptr, ir::index((a.value().expr()->integer + b - 1) / b));
  return (a + Arg(b - 1, a.loc())) / Arg(b, a.loc());
}

}  // namespace tessera::dsl
