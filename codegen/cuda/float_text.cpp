// The float part of ExpressionPrinter: f32 arithmetic, CUDA's functions, sign bits and NaN.

#include <fmt/format.h>

#include <cmath>

#include "codegen/analysis/float_range.h"
#include "codegen/cuda/expression.h"
#include "codegen/cuda/literal.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {
namespace {

using ir::Op;

/// True if `op` with the constant on one side gives back the other side, for every number: x * 1, x
/// + -0. (x + 0 is none of them: it turns -0 into 0.)
bool is_identity_constant(Op op, const Expr& e) {
  if (!ir::is_constant(e)) return false;
  if (op == Op::mul || op == Op::div) return e->number == 1;
  const bool is_negative = std::signbit(e->number);
  return e->number == 0 && (op == Op::add ? is_negative : op == Op::sub && !is_negative);
}

bool is_identity(const ir::Node& node) {
  const bool commutes = node.op == Op::add || node.op == Op::mul;
  return is_identity_constant(node.op, node.args[1]) ||
         (commutes && is_identity_constant(node.op, node.args[0]));
}

/// Which argument is the x of x * -1, x / -1 or -0 - x; nothing if `node` is none of them.
std::optional<size_t> negated_argument(const ir::Node& node) {
  const auto is = [&](size_t i, double value) {
    const Expr& arg = node.args[i];
    return ir::is_constant(arg) && arg->number == value && std::signbit(arg->number);
  };
  const bool multiplies = node.op == Op::mul;
  if ((multiplies || node.op == Op::div) && is(1, -1)) return 0;
  if ((multiplies && is(0, -1)) || (node.op == Op::sub && is(0, 0))) return 1;
  return {};
}

}  // namespace

std::string ExpressionPrinter::f32_argument(const Expr& e, size_t i, Precedence outer) {
  const Expr& arg = e->args[i];
  if (ir::is_constant(arg)) {
    const bool negative = std::signbit(arg->number);
    return parenthesise(
        {f32_literal(arg->number), negative ? Precedence::unary : Precedence::primary}, outer);
  }
  if (const std::optional<Text> wide = widened_from_pair(arg)) return wide->text;
  return parenthesise(
      convert(DType::f32, arg->type, text(arg, ValueRole::operand), ValueRole::operand), outer);
}

// CUDA's division tests its operands and branches for some. For positive operands, one of them constant, the
// ranges without overflow and underflow are known; there a few multiplications give the quotient.
std::optional<Text> ExpressionPrinter::quotient(const Expr& e) {
  if (e->op != Op::div || e->type != DType::f32) return {};
  const auto range = [&](size_t i) {
    int left = 64;  // definitions to look through; bounds the recursion
    return float_range(e->args[i], [&](const ir::Var& var) {
      return left-- > 0 ? usage_.definition(var) : Expr();
    });
  };
  constexpr double kSmallest = 0x1p-126, kLargest = 0x1p20;  // normal; far from overflow
  const FloatRange over = range(0), under = range(1);
  if (over.may_be_nan || under.may_be_nan || over.low <= 0 || under.low <= 0) return {};
  const std::string a = f32_argument(e, 0), b = f32_argument(e, 1);
  if (under.low == under.high) {
    // With a whole divisor the remainder is exact in f32, however small.
    const double divisor = under.low;
    const bool fits =
        divisor == std::floor(divisor) && divisor <= kLargest && over.low / divisor >= kSmallest;
    if (!fits) return {};
    return Text{fmt::format("{}({}, {}, {})", call("quotient_by"), a, b,
                            f32_literal(1.0f / static_cast<float>(divisor)))};
  }
  const bool fits = over.low == over.high && over.low >= 4 && over.low <= kLargest &&
                    under.low / 4 >= kSmallest && over.low / under.low < 0x1p127;
  if (!fits) return {};
  return Text{fmt::format("{}({}, {})", call("quotient"), a, b)};
}

// A division 1 / (1 + exp(-x)) shares its steps with silu(x).
std::optional<Text> ExpressionPrinter::sigmoid(const Expr& e) {
  const auto is_one = [](const Expr& x) { return ir::is_constant(x) && x->number == 1; };
  if (e->op != Op::div || e->type != DType::f32 || !is_one(e->args[0])) return {};
  const Expr& sum = e->args[1];
  if (sum->op != Op::add || !is_one(sum->args[0])) return {};
  const Expr& power = sum->args[1];
  if (power->op != Op::exp || power->args[0]->op != Op::neg) return {};
  return Text{fmt::format("{}({})", call("sigmoid"), f32_argument(power->args[0], 0))};
}

// Computes in f32; small floats round the result.
Text ExpressionPrinter::float_arithmetic(const Expr& e) {
  if (std::optional<Text> text = sigmoid(e)) return *std::move(text);
  if (std::optional<Text> text = quotient(e)) return *std::move(text);
  const Operator op = infix(e->op);
  if (*op.symbol == '\0')
    return convert(e->type, DType::f32, function(e, ValueRole::operand), ValueRole::operand);
  TESSERA_CHECK(e->op != Op::mod && !is_bitwise(e->op),
                fmt::format("{} of {}", ir::name(e->op), name(e->type)));
  Text result;
  if (is_identity(*e)) {
    // The compiler would drop the operation and its effect on NaN.
    const size_t x = is_identity_constant(e->op, e->args[1]) ? 0 : 1;
    result = {fmt::format("{}({})", call("canonical_nan"), f32_argument(e, x))};
  } else if (const std::optional<size_t> x = negated_argument(*e)) {
    // It would drop both of two in a row.
    result = {fmt::format("{}({})", call("negated"), f32_argument(e, *x))};
  } else {
    result = {fmt::format("{} {} {}", f32_argument(e, 0, operand_precedence(e->op, false)),
                          op.symbol, f32_argument(e, 1, operand_precedence(e->op, true))),
              op.precedence};
  }
  return convert(e->type, DType::f32, std::move(result), ValueRole::operand);
}

// Calls of CUDA's own functions: f32 for every float, else integers.
Text ExpressionPrinter::function(const Expr& e, ValueRole role) {
  const bool floating = is_float(e->type);
  const bool is_extreme = e->op == Op::min || e->op == Op::max;
  if (floating && is_extreme && ir::equal(e->args[0], e->args[1])) {
    return {fmt::format("{}({})", call("canonical_nan"), f32_argument(e, 0))};
  }
  const auto callee = [&]() -> const char* {
    switch (e->op) {
      case Op::min:
        return floating ? "fminf" : "min";
      case Op::max:
        return floating ? "fmaxf" : "max";
      case Op::fma:
        return "fmaf";
      case Op::sqrt:
        return "sqrtf";
      case Op::rsqrt:
        return "rsqrtf";
      case Op::round_tf32:
        return call("round_tf32").c_str();
      case Op::exp:
        return "expf";
      case Op::exp2:
        return "exp2f";
      case Op::log:
        return "logf";
      case Op::log2:
        return "log2f";
      case Op::log1p:
        return "log1pf";
      case Op::sin:
        return "sinf";
      case Op::cos:
        return "cosf";
      case Op::tanh:
        return "tanhf";
      case Op::erf:
        return "erff";
      case Op::floor:
        return "floorf";
      case Op::ceil:
        return "ceilf";
      case Op::rint:
        return "rintf";
      case Op::silu:
      case Op::exp2_approx:
      case Op::log2_approx:
      case Op::sin_approx:
      case Op::cos_approx:
      case Op::tanh_approx:
        return call(ir::name(e->op)).c_str();
      default:
        internal_error(fmt::format("{} of {}", ir::name(e->op), name(e->type)), e->loc);
    }
  };
  std::string result = callee();
  for (size_t i = 0; i < e->args.size(); ++i) {
    result += i == 0 ? "(" : ", ";
    result += floating ? f32_argument(e, i) : argument(e, i, role);
  }
  return {result + ")"};
}

Text ExpressionPrinter::small_float_sign(const Expr& e, ValueRole role) {
  const uint32_t sign = float_bits(e->type, -0.0);
  const std::string x = argument(e, 0, role, Precedence::unary);
  if (e->op == Op::neg) return {fmt::format("{} ^ 0x{:X}", x, sign), Precedence::bit_xor};
  if (e->op == Op::abs) return {fmt::format("{} & 0x{:X}", x, sign - 1), Precedence::bit_and};
  return {fmt::format("({} & 0x{:X}) | ({} & 0x{:X})", x, sign - 1,
                      argument(e, 1, role, Precedence::unary), sign),
          Precedence::bit_or};
}

// Integers and f32. On floats these change the sign bit only; CUDA's own functions may change a NaN.
Text ExpressionPrinter::sign_operation(const Expr& e, ValueRole role) {
  const bool floating = e->type == DType::f32;
  if (e->op == Op::copysign) {
    return {fmt::format("copysignf({}, {})", argument(e, 0, role), argument(e, 1, role))};
  }
  if (floating && role == ValueRole::value) {
    return {fmt::format("{}({})", call(e->op == Op::neg ? "flip_sign" : "clear_sign"),
                        argument(e, 0, role))};
  }
  if (e->op == Op::abs) {
    if (floating) return {fmt::format("fabsf({})", argument(e, 0, role))};
    if (!is_signed(e->type)) return text(e->args[0], role);
    if (is_wide(e->type))
      return {fmt::format("{}({})", call("wrapping_abs"), argument(e, 0, role))};
    return {fmt::format("{}(abs({}))", type(e->type), argument(e, 0, role))};
  }
  const bool is_signed_wide = e->type == DType::i32 || e->type == DType::i64;
  if (is_signed_wide && usage_.may_wrap(e, role)) {
    return {fmt::format("{}({}, {})", call("wrapping_sub"), integer_literal(e->type, 0),
                        argument(e, 0, role))};
  }
  // "- -x", because "--x" is another operator.
  const std::string operand = argument(e, 0, role, Precedence::unary);
  const Text result{(operand.front() == '-' ? "- " : "-") + operand, Precedence::unary};
  if (is_promoted(e->type)) return {fmt::format("{}({})", type(e->type), result.text)};
  return result;
}

// NaN if either is NaN, else the smaller or the larger: one instruction.
std::optional<Text> ExpressionPrinter::extreme_with_nan(const Expr& e) {
  const Expr &either = e->args[0], &sum = e->args[1], &number = e->args[2];
  if (e->type != DType::f32 || either->op != Op::logical_or || sum->op != Op::add ||
      (number->op != Op::min && number->op != Op::max)) {
    return {};
  }
  for (size_t i = 0; i < 2; ++i) {
    const Expr &is_nan = either->args[i], &arg = number->args[i];
    if (is_nan->op != Op::is_nan || arg->type != DType::f32) return {};
    if (!ir::equal(is_nan->args[0], arg) || !ir::equal(sum->args[i], arg)) return {};
  }
  const std::string& function = call(number->op == Op::min ? "min_nan" : "max_nan");
  return Text{
      fmt::format("{}({}, {})", function, f32_argument(number, 0), f32_argument(number, 1))};
}

}  // namespace tessera::codegen::cuda
