// Operators and functions of values: dtype rules and what they record.

#include <fmt/format.h>

#include "dsl/operands.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

Recorder* recorder_of(const Arg& a, const Arg& b) {
  return a.recorder() != nullptr ? a.recorder() : b.recorder();
}

bool is_i32_or_i64(DType type) {
  return type == DType::i32 || type == DType::i64;
}

/// Converts both operands to one dtype: a literal takes the other's, i32 widens to i64.
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
    operand_error(recorder, "DTYPE", fmt::format("operands of '{}' have different dtypes", what),
                  b.loc(), word(x.dtype()), word(y.dtype()),
                  "convert one of them with cast(dtype, value)");
  }
  return {x, y};
}

// `approximated`: floats with functions that a GPU approximates.
enum class Domain { number, integer, floating, approximated, boolean, any };

void require(Domain domain, const Value& value, const char* what, SourceLoc loc,
             Recorder* recorder) {
  const DType type = value.dtype();
  // 8-bit and 4-bit floats are storage formats: arithmetic goes through f32.
  const bool at_most_f32 = type == DType::f32 || type == DType::f16 || type == DType::bf16;
  const bool wide_float = at_most_f32 || type == DType::f64;
  bool fits = true;
  std::string expected;
  switch (domain) {
    case Domain::number:
      fits = is_integer(type) || wide_float;
      expected = "an integer, f64, f32, f16 or bf16";
      break;
    case Domain::integer:
      fits = is_integer(type);
      expected = "an integer";
      break;
    case Domain::floating:
      fits = wide_float;
      expected = "f64, f32, f16 or bf16";
      break;
    case Domain::approximated:
      fits = at_most_f32;
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
    operand_error(recorder, "DTYPE", fmt::format("operand of '{}' has the wrong dtype", what), loc,
                  expected, word(type), is_float(type) ? "convert it with f32(value)" : "");
  }
}

Value arithmetic(ir::Op op, const Arg& a, const Arg& b, const char* what, Domain domain) {
  auto [x, y] = unify(a, b, what);
  Recorder* recorder = recorder_of(a, b);
  require(domain, x, what, a.loc(), recorder);
  if ((op == ir::Op::div || op == ir::Op::mod) && ir::is_constant(y.expr(), 0)) {
    operand_error(recorder, "DIV_BY_ZERO", fmt::format("'{}' by the constant 0", what), b.loc());
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
    operand_error(recorder, "DTYPE", fmt::format("the amount of '{}' has the wrong dtype", what),
                  amount.loc(), "i32 or u32", word(y.dtype()));
  }
  return made(recorder, ir::binary(op, x.expr(), y.expr(), a.loc()));
}

Value function(ir::Op op, const Arg& a, const char* what, Domain domain) {
  const Value x = a.value();
  require(domain, x, what, a.loc(), a.recorder());
  return made(a.recorder(), ir::unary(op, x.expr(), a.loc()));
}

Value f32_function(ir::Op op, const Arg& a) {
  const Value x = a.as(DType::f32, a.recorder());
  return made(a.recorder(), ir::unary(op, x.expr(), a.loc()));
}

/// A function of the bits of an unsigned integer.
Value bits_function(ir::Op op, const Arg& a, const char* what) {
  const Value x = a.value();
  if (x.dtype() != DType::u32 && x.dtype() != DType::u64) {
    operand_error(a.recorder(), "DTYPE", fmt::format("operand of '{}' has the wrong dtype", what),
                  a.loc(), "u32 or u64", word(x.dtype()));
  }
  return made(a.recorder(), ir::unary(op, x.expr(), a.loc()));
}

}  // namespace

Value made(Recorder* recorder, ir::Expr e) {
  if (recorder != nullptr) recorder->check_size(e);
  return Value(recorder, std::move(e));
}

void operand_error(Recorder* recorder, const char* code, std::string what, SourceLoc loc,
                   std::string expected, std::string got, std::string hint) {
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
  const auto is_f64 = [](const Arg& arg) {
    return !arg.is_literal() && arg.value().dtype() == DType::f64;
  };
  const DType type = is_f64(a) || is_f64(b) || is_f64(c) ? DType::f64 : DType::f32;
  const Value x = a.as(type, recorder);
  const Value y = b.as(type, recorder);
  const Value z = c.as(type, recorder);
  return made(recorder, ir::call(Op::fma, type, {x.expr(), y.expr(), z.expr()}, a.loc()));
}

Value sqrt(const Arg& a) {
  return function(Op::sqrt, a, "sqrt", Domain::floating);
}
Value rsqrt(const Arg& a) {
  return function(Op::rsqrt, a, "rsqrt", Domain::approximated);
}
Value round_tf32(const Arg& a) {
  return f32_function(Op::round_tf32, a);
}
Value f16x2_toward_zero(const Arg& high, const Arg& low) {
  Recorder* recorder = recorder_of(high, low);
  const Value x = high.as(DType::f32, recorder);
  const Value y = low.as(DType::f32, recorder);
  return made(recorder,
              ir::call(Op::f16x2_toward_zero, DType::u32, {x.expr(), y.expr()}, high.loc()));
}
Value exp(const Arg& a) {
  return function(Op::exp, a, "exp", Domain::approximated);
}
Value silu(const Arg& a) {
  return f32_function(Op::silu, a);
}
Value exp2(const Arg& a) {
  return function(Op::exp2, a, "exp2", Domain::approximated);
}
Value log(const Arg& a) {
  return function(Op::log, a, "log", Domain::approximated);
}
Value log2(const Arg& a) {
  return function(Op::log2, a, "log2", Domain::approximated);
}
Value log1p(const Arg& a) {
  return function(Op::log1p, a, "log1p", Domain::approximated);
}
Value sin(const Arg& a) {
  return function(Op::sin, a, "sin", Domain::approximated);
}
Value cos(const Arg& a) {
  return function(Op::cos, a, "cos", Domain::approximated);
}
Value tanh(const Arg& a) {
  return function(Op::tanh, a, "tanh", Domain::approximated);
}
Value erf(const Arg& a) {
  return function(Op::erf, a, "erf", Domain::approximated);
}
Value floor(const Arg& a) {
  return function(Op::floor, a, "floor", Domain::floating);
}
Value ceil(const Arg& a) {
  return function(Op::ceil, a, "ceil", Domain::floating);
}
Value rint(const Arg& a) {
  return function(Op::rint, a, "rint", Domain::floating);
}
Value exp2_approx(const Arg& a) {
  return f32_function(Op::exp2_approx, a);
}
Value log2_approx(const Arg& a) {
  return f32_function(Op::log2_approx, a);
}
Value sin_approx(const Arg& a) {
  return f32_function(Op::sin_approx, a);
}
Value cos_approx(const Arg& a) {
  return f32_function(Op::cos_approx, a);
}
Value tanh_approx(const Arg& a) {
  return f32_function(Op::tanh_approx, a);
}
Value exp_approx(const Arg& a) {
  return exp2_approx(a * 0x1.715476p0f);  // log2(e)
}
Value log_approx(const Arg& a) {
  return log2_approx(a) * 0x1.62e43p-1f;  // log(2)
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
  return bits_function(Op::popcount, a, "popcount");
}
Value clz(const Arg& a) {
  return bits_function(Op::clz, a, "clz");
}
Value ffs(const Arg& a) {
  return bits_function(Op::ffs, a, "ffs");
}

Value mulhi(const Arg& a, const Arg& b) {
  auto [x, y] = unify(a, b, "mulhi");
  Recorder* recorder = recorder_of(a, b);
  if (!is_integer(x.dtype()) || bits(x.dtype()) < 32) {
    operand_error(recorder, "DTYPE", "operand of 'mulhi' has the wrong dtype", a.loc(),
                  "i32, u32, i64 or u64", word(x.dtype()));
  }
  return made(recorder, ir::binary(Op::mulhi, x.expr(), y.expr(), a.loc()));
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
    operand_error(a.recorder(), "DTYPE", "reinterpret needs a dtype of the same width", a.loc(),
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
    operand_error(a.recorder(), "DIV_BY_ZERO", "ceil_div by a constant that is not positive",
                  a.loc(), "a positive constant", fmt::format("{}", b));
  }
  if (a.is_literal()) return Value(nullptr, ir::index((a.value().expr()->integer + b - 1) / b));
  return (a + Arg(b - 1, a.loc())) / Arg(b, a.loc());
}

}  // namespace tessera::dsl
