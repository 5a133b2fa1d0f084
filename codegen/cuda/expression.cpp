#include "codegen/cuda/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "codegen/analysis/float_range.h"
#include "codegen/analysis/int_range.h"
#include "codegen/cuda/literal.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {
namespace {

using ir::Op;

struct Operator {
  const char* symbol;
  Precedence precedence;
};

/// The infix form of an operation; no symbol if it has none.
Operator infix(Op op) {
  switch (op) {
    case Op::add:
      return {"+", Precedence::additive};
    case Op::sub:
      return {"-", Precedence::additive};
    case Op::mul:
      return {"*", Precedence::multiplicative};
    case Op::div:
      return {"/", Precedence::multiplicative};
    case Op::mod:
      return {"%", Precedence::multiplicative};
    case Op::bit_and:
      return {"&", Precedence::bit_and};
    case Op::bit_or:
      return {"|", Precedence::bit_or};
    case Op::bit_xor:
      return {"^", Precedence::bit_xor};
    case Op::shl:
      return {"<<", Precedence::shift};
    case Op::shr:
      return {">>", Precedence::shift};
    case Op::lt:
      return {"<", Precedence::relational};
    case Op::le:
      return {"<=", Precedence::relational};
    case Op::eq:
      return {"==", Precedence::equality};
    case Op::ne:
      return {"!=", Precedence::equality};
    case Op::logical_and:
      return {"&&", Precedence::logical_and};
    case Op::logical_or:
      return {"||", Precedence::logical_or};
    default:
      return {"", Precedence::primary};
  }
}

Precedence tighter(Precedence precedence) {
  return static_cast<Precedence>(static_cast<int>(precedence) + 1);
}

bool is_bitwise(Op op) {
  return op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor;
}

/// The least precedence at which an operand may stand bare. Readers know arithmetic, comparison and
/// && by heart; mixes of bit operators with others, and of && with ||, keep parentheses that C++
/// does not need.
Precedence operand_precedence(Op op, bool right) {
  if (is_bitwise(op) || op == Op::shl || op == Op::shr) return Precedence::unary;
  if (op == Op::logical_or) return right ? Precedence::bit_or : Precedence::logical_or;
  const Precedence own = infix(op).precedence;
  return right ? tighter(own) : own;
}

/// a + (b + c), where the order of the additions cannot matter.
bool is_associative(Op op, DType type) {
  return !is_float(type) && (op == Op::add || op == Op::mul || op == Op::logical_and ||
                             op == Op::logical_or || is_bitwise(op));
}

bool is_widening(const Expr& e) {
  return e->op == Op::cast && e->type == DType::i64 && e->args[0]->type == DType::i32;
}

/// True if the text of the product, without parentheses, begins with a quotient or a remainder.
bool begins_with_division(const Expr& e) {
  if (e->op == Op::mul || is_widening(e)) return begins_with_division(e->args[0]);
  return e->op == Op::div || e->op == Op::mod;
}

/// True if operand `i` is printed in one chain with the operator: a + (b + c) as a + b + c.
bool is_chained(const Expr& e, size_t i) {
  const Expr& arg = e->args[i];
  if (arg->op != e->op || !is_associative(e->op, e->type)) return false;
  return i == 0 || e->op != Op::mul || !begins_with_division(arg);  // not a * b / c * d
}

/// What stands between the operators of the chain `e`, in the order of its text.
void add_terms(const Expr& e, std::vector<Expr>& terms) {
  for (size_t i = 0; i < 2; ++i) {
    if (is_chained(e, i)) {
      add_terms(e->args[i], terms);
    } else {
      terms.push_back(e->args[i]);
    }
  }
}

bool fits_int(int64_t value) {
  return value == static_cast<int32_t>(value);
}

bool is_wide(DType type) {
  return type == DType::i32 || type == DType::i64 || type == DType::u32 || type == DType::u64;
}

/// True for the integers that C++ promotes to int before it computes.
bool is_promoted(DType type) {
  return is_integer(type) && !is_wide(type);
}

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

bool is_int_beside_wide(const Expr& e, size_t i);

/// The sum or product of the ints with which the text of the chain `e`, an i64, begins; null if with
/// none.
Expr leading_ints(const Expr& e) {
  if (is_chained(e, 0)) return leading_ints(e->args[0]);
  if (!is_int_beside_wide(e, 0)) return {};
  const Expr next = is_chained(e, 1) ? leading_ints(e->args[1]) : Expr();
  return next ? ir::binary(e->op, e->args[0], next) : e->args[0];
}

/// True if no overflow of int comes of `a` and `b` meeting before an i64 does.
bool fits_int(Op op, const Expr& a, const Expr& b) {
  constexpr int kMostThreads = 1024;
  IntRanges ranges([](const ir::Var&) { return Expr(); }, kMostThreads);
  const IntRange range = ranges.of(ir::binary(op, a, b));
  return range.low >= std::numeric_limits<int>::min() &&
         range.high <= std::numeric_limits<int>::max();
}

/// True if C++ itself converts the i64 operand `i`, a literal or i64(int), because it meets another
/// i64.
bool is_int_beside_wide(const Expr& e, size_t i) {
  const Expr &arg = e->args[i], &other = e->args[1 - i];
  const bool right = i == 1;
  if (ir::is_constant(other)) return false;
  const bool is_literal = ir::is_constant(arg) && arg->type == DType::i64 &&
                          fits_int(arg->integer) && arg->integer >= 0;
  // Of two that are widened, the left one is written.
  const bool is_widened = is_widening(arg) && (right || !is_widening(other));
  if (!is_literal && !is_widened) return false;
  const Expr next = !right && is_chained(e, 1) ? leading_ints(other) : Expr();
  return !next || fits_int(e->op, arg, next);
}

}  // namespace

std::string parenthesise(Text text, Precedence outer) {
  if (text.precedence >= outer) return std::move(text.text);
  return "(" + text.text + ")";
}

const std::string& ExpressionPrinter::call(std::string_view name) {
  return *called_.emplace(name).first;
}

std::string ExpressionPrinter::type(DType type) {
  return is_builtin(type) ? std::string(type_name(type)) : call(type_name(type));
}

std::string ExpressionPrinter::print(const Expr& e, Role role, Precedence outer) {
  return parenthesise(text(e, role), outer);
}

std::string ExpressionPrinter::argument(const Expr& e, size_t i, Role role, Precedence outer) {
  return print(e->args[i], argument_role(*e, i, role), outer);
}

std::string ExpressionPrinter::f32_argument(const Expr& e, size_t i, Precedence outer) {
  const Expr& arg = e->args[i];
  if (ir::is_constant(arg)) {
    const bool negative = std::signbit(arg->number);
    return parenthesise(
        {f32_literal(arg->number), negative ? Precedence::unary : Precedence::primary}, outer);
  }
  if (const std::optional<Text> wide = widened_from_pair(arg)) return wide->text;
  return parenthesise(convert(DType::f32, arg->type, text(arg, Role::operand), Role::operand),
                      outer);
}

Text ExpressionPrinter::text(const Expr& e, Role role) {
  switch (e->op) {
    case Op::constant:
      return constant(*e);
    case Op::var:
      return variable(*e->var);
    case Op::lt:
    case Op::le:
    case Op::eq:
    case Op::ne:
      return comparison(e, role);
    case Op::shl:
    case Op::shr:
      return shift(e, role);
    case Op::neg:
    case Op::abs:
    case Op::copysign:
      return is_small_float(e->type) ? small_float_sign(e, role) : sign_operation(e, role);
    case Op::select:
      return select(e, role);
    case Op::cast:
      return cast(e, role);
    case Op::bitcast:
      return bitcast(e, role);
    case Op::logical_not:
      return {"!" + argument(e, 0, role, Precedence::unary), Precedence::unary};
    case Op::is_nan:
    case Op::is_inf:
      return {fmt::format("{}({})", call(ir::name(e->op)), f32_argument(e, 0))};
    case Op::f16x2_toward_zero:
      return {
          fmt::format("{}({}, {})", call(ir::name(e->op)), f32_argument(e, 0), f32_argument(e, 1))};
    case Op::popcount:
    case Op::clz:
    case Op::ffs:
    case Op::mulhi:
      return intrinsic(e, role);
    default:
      return is_float(e->type) ? float_arithmetic(e) : integer_binary(e, role);
  }
}

Text ExpressionPrinter::constant(const ir::Node& node) {
  if (is_float(node.type)) {
    const bool unary = node.type == DType::f32 && std::signbit(node.number);
    return {float_literal(node.type, node.number), unary ? Precedence::unary : Precedence::primary};
  }
  const std::string literal = integer_literal(node.type, node.integer);
  return {literal, literal.front() == '-' ? Precedence::unary : Precedence::primary};
}

Text ExpressionPrinter::variable(const ir::Var& var) {
  const Access* load = usage_.inlined_load(var);
  if (load == nullptr) return {names_.of(&var)};
  return element(*load);
}

// Integers and booleans.
Text ExpressionPrinter::integer_binary(const Expr& e, Role role) {
  if (e->op == Op::min || e->op == Op::max) return function(e, role);
  const bool arithmetic = e->op == Op::add || e->op == Op::sub || e->op == Op::mul;
  const bool is_signed_wide = e->type == DType::i32 || e->type == DType::i64;
  if (arithmetic && is_signed_wide && may_wrap(e, role)) {
    return {fmt::format("{}({}, {})", call(fmt::format("wrapping_{}", ir::name(e->op))),
                        argument(e, 0, role), argument(e, 1, role))};
  }
  const Operator op = infix(e->op);
  TESSERA_CHECK(*op.symbol != '\0', fmt::format("{} of {}", ir::name(e->op), name(e->type)));
  const Text result{
      fmt::format("{} {} {}", integer_operand(e, 0, role), op.symbol, integer_operand(e, 1, role)),
      op.precedence};
  if (!is_promoted(e->type) || is_bitwise(e->op)) return result;
  // Computed as int, then wrapped to the type. The product of two u16 needs an unsigned int.
  if (e->type == DType::u16 && e->op == Op::mul) {
    return {fmt::format("{}({}({}) * {})", type(e->type), type(DType::u32), argument(e, 0, role),
                        argument(e, 1, role, Precedence::unary))};
  }
  return {fmt::format("{}({})", type(e->type), result.text)};
}

// In the program's order, or in that of the text, where a + (b + c) loses its parentheses.
bool ExpressionPrinter::may_wrap(const Expr& e, Role role) const {
  if (usage_.may_wrap(e, role)) return true;
  if (!is_chained(e, 1)) return false;
  std::vector<Expr> terms;
  add_terms(e, terms);
  Expr prefix = terms[0];
  return std::any_of(terms.begin() + 1, terms.end(), [&](const Expr& term) {
    prefix = ir::binary(e->op, prefix, term);
    return prefix->op == e->op && usage_.may_wrap(prefix, role);
  });
}

std::string ExpressionPrinter::integer_operand(const Expr& e, size_t i, Role role) {
  const Expr& arg = e->args[i];
  const bool is_int = is_int_beside_wide(e, i);
  if (is_int && ir::is_constant(arg)) return fmt::format("{}", arg->integer);
  // Bit patterns read best in hexadecimal.
  if (ir::is_constant(arg) && is_bitwise(e->op) && arg->integer > 9) {
    return integer_literal(arg->type, arg->integer, true);
  }
  const Precedence outer = operand_precedence(e->op, i == 1);
  if (is_int) return argument(arg, 0, role, outer);
  return argument(e, i, role, is_chained(e, i) ? infix(e->op).precedence : outer);
}

// A division tests its operands and branches for some. Of positive operands, one of them a
// constant, it is known which are out of the way of overflow and underflow, and of those the
// quotient is a few multiplications.
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
    // A whole divisor leaves a remainder that has a float, however small.
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

// Computes in f32; small floats round the result.
Text ExpressionPrinter::float_arithmetic(const Expr& e) {
  if (std::optional<Text> text = quotient(e)) return *std::move(text);
  const Operator op = infix(e->op);
  if (*op.symbol == '\0')
    return convert(e->type, DType::f32, function(e, Role::operand), Role::operand);
  TESSERA_CHECK(e->op != Op::mod && !is_bitwise(e->op),
                fmt::format("{} of {}", ir::name(e->op), name(e->type)));
  Text result;
  if (is_identity(*e)) {
    // The compiler would drop the operation, and with it what it does to a NaN.
    const size_t x = is_identity_constant(e->op, e->args[1]) ? 0 : 1;
    result = {fmt::format("{}({})", call("canonical_nan"), f32_argument(e, x))};
  } else if (const std::optional<size_t> x = negated_argument(*e)) {
    // Of two in a row it would drop both.
    result = {fmt::format("{}({})", call("negated"), f32_argument(e, *x))};
  } else {
    result = {fmt::format("{} {} {}", f32_argument(e, 0, operand_precedence(e->op, false)),
                          op.symbol, f32_argument(e, 1, operand_precedence(e->op, true))),
              op.precedence};
  }
  return convert(e->type, DType::f32, std::move(result), Role::operand);
}

// Calls of CUDA's own functions: f32 for every float, else integers.
Text ExpressionPrinter::function(const Expr& e, Role role) {
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

// Functions of integers that CUDA has for 32 and for 64 bits.
Text ExpressionPrinter::intrinsic(const Expr& e, Role role) {
  const DType type = e->args[0]->type;
  const bool is_wide = bits(type) == 64;
  if (e->op == Op::mulhi) {
    return {fmt::format("__{}mul{}({}, {})", is_signed(type) ? "" : "u", is_wide ? "64hi" : "hi",
                        argument(e, 0, role), argument(e, 1, role))};
  }
  const char* name = e->op == Op::popcount ? "popc" : e->op == Op::clz ? "clz" : "ffs";
  return {fmt::format("__{}{}({})", name, is_wide ? "ll" : "", argument(e, 0, role))};
}

Text ExpressionPrinter::comparison(const Expr& e, Role role) {
  if (!is_float(e->args[0]->type)) {
    return {fmt::format("{} {} {}", integer_operand(e, 0, role), infix(e->op).symbol,
                        integer_operand(e, 1, role)),
            infix(e->op).precedence};
  }
  const Operator op = infix(e->op);
  return {fmt::format("{} {} {}", f32_argument(e, 0, operand_precedence(e->op, false)), op.symbol,
                      f32_argument(e, 1, operand_precedence(e->op, true))),
          op.precedence};
}

Text ExpressionPrinter::shift(const Expr& e, Role role) {
  const Expr& amount = e->args[1];
  const bool left = e->op == Op::shl;
  Text result;
  if (ir::is_constant(amount) && amount->integer >= 0 && amount->integer < bits(e->type)) {
    result = {fmt::format("{} {} {}", argument(e, 0, role, Precedence::unary), left ? "<<" : ">>",
                          amount->integer),
              Precedence::shift};
  } else {
    // The device function knows 32 and 64 bits.
    std::string operand = argument(e, 0, role);
    if (is_promoted(e->type)) {
      operand = fmt::format("{}({})", type(is_signed(e->type) ? DType::i32 : DType::u32), operand);
    }
    result = {fmt::format("{}({}, {})", call(left ? "shift_left" : "shift_right"), operand,
                          argument(e, 1, role))};
  }
  if (is_promoted(e->type)) return {fmt::format("{}({})", type(e->type), result.text)};
  return result;
}

Text ExpressionPrinter::small_float_sign(const Expr& e, Role role) {
  const uint32_t sign = float_bits(e->type, -0.0);
  const std::string x = argument(e, 0, role, Precedence::unary);
  if (e->op == Op::neg) return {fmt::format("{} ^ 0x{:X}", x, sign), Precedence::bit_xor};
  if (e->op == Op::abs) return {fmt::format("{} & 0x{:X}", x, sign - 1), Precedence::bit_and};
  return {fmt::format("({} & 0x{:X}) | ({} & 0x{:X})", x, sign - 1,
                      argument(e, 1, role, Precedence::unary), sign),
          Precedence::bit_or};
}

// Of integers and f32. On floats these touch nothing but the sign bit, where CUDA's own may change
// a NaN.
Text ExpressionPrinter::sign_operation(const Expr& e, Role role) {
  const bool floating = e->type == DType::f32;
  if (e->op == Op::copysign) {
    return {fmt::format("copysignf({}, {})", argument(e, 0, role), argument(e, 1, role))};
  }
  if (floating && role == Role::value) {
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

// The sum of two numbers of which one is NaN, else the smaller or the larger: one instruction.
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

Text ExpressionPrinter::select(const Expr& e, Role role) {
  if (std::optional<Text> text = extreme_with_nan(e)) return *std::move(text);
  return {fmt::format("{} ? {} : {}", argument(e, 0, role, Precedence::logical_or),
                      argument(e, 1, role, Precedence::logical_or),
                      argument(e, 2, role, Precedence::conditional)),
          Precedence::conditional};
}

}  // namespace tessera::codegen::cuda
