#include "codegen/cuda/expression.h"

#include <fmt/format.h>

#include <cmath>

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

bool is_widening(const Expr& e) {
  return e->op == Op::cast && e->type == DType::i64 && e->args[0]->type == DType::i32;
}

/// True if C++ itself converts the operand i64(arg) of an operator, because the other operand is an
/// i64 anyway.
bool is_widened_by(const Expr& arg, const Expr& other, bool right) {
  if (!is_widening(arg) || ir::is_constant(other)) return false;
  return !is_widening(other) || right;  // of two, the left one is written
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

std::string ExpressionPrinter::index(const Expr& e, Precedence outer) {
  return at(e, Role::index, outer);
}

std::string ExpressionPrinter::value(const Expr& e, Precedence outer) {
  return at(e, Role::value, outer);
}

std::string ExpressionPrinter::at(const Expr& e, Role role, Precedence outer) {
  return parenthesise(print(e, role), outer);
}

std::string ExpressionPrinter::as_f32(const Expr& e, Role role, Precedence outer) {
  if (ir::is_constant(e)) {
    const bool negative = std::signbit(e->number);
    return parenthesise(
        {f32_literal(e->number), negative ? Precedence::unary : Precedence::primary}, outer);
  }
  return parenthesise(convert(DType::f32, e->type, print(e, role)), outer);
}

Text ExpressionPrinter::print(const Expr& e, Role role) {
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
      return sign_operation(e, role);
    case Op::select:
      return select(e, role);
    case Op::cast:
      if (ir::is_constant(e->args[0]) && is_float(e->args[0]->type)) {
        return convert(e->type, DType::f32, {as_f32(e->args[0], role, Precedence::lowest)});
      }
      return convert(e->type, e->args[0]->type, print(e->args[0], role));
    case Op::bitcast:
      return bitcast(e, role);
    case Op::logical_not:
      return {"!" + at(e->args[0], role, Precedence::unary), Precedence::unary};
    case Op::is_nan:
    case Op::is_inf:
      return {fmt::format("{}({})", call(ir::name(e->op)),
                          as_f32(e->args[0], role, Precedence::lowest))};
    case Op::popcount: {
      const bool wide = bits(e->args[0]->type) == 64;
      return {fmt::format("{}({})", wide ? "__popcll" : "__popc", argument(e->args[0], role))};
    }
    default:
      return is_float(e->type) ? arithmetic_f32(e, role) : binary(e, role);
  }
}

Text ExpressionPrinter::constant(const ir::Node& node) {
  if (is_float(node.type)) {
    const bool unary = node.type == DType::f32 && std::signbit(node.number);
    return {float_literal(node.type, node.number), unary ? Precedence::unary : Precedence::primary};
  }
  const std::string text = integer_literal(node.type, node.integer);
  return {text, text.front() == '-' ? Precedence::unary : Precedence::primary};
}

Text ExpressionPrinter::variable(const ir::Var& var) {
  const Access* load = usage_.inlined_load(var);
  if (load == nullptr) return {names_.of(&var)};
  return element(*load);
}

// Integers and booleans.
Text ExpressionPrinter::binary(const Expr& e, Role role) {
  const Expr& a = e->args[0];
  const Expr& b = e->args[1];
  if (e->op == Op::min || e->op == Op::max) return function(e, role);
  const bool arithmetic = e->op == Op::add || e->op == Op::sub || e->op == Op::mul;
  const bool is_signed_wide = e->type == DType::i32 || e->type == DType::i64;
  if (arithmetic && is_signed_wide && role == Role::value && usage_.depends_on_data(e)) {
    return {fmt::format("{}({}, {})", call(fmt::format("wrapping_{}", ir::name(e->op))),
                        argument(a, role), argument(b, role))};
  }
  const Operator op = infix(e->op);
  TESSERA_CHECK(*op.symbol != '\0', fmt::format("{} of {}", ir::name(e->op), name(e->type)));
  const auto operand = [&](const Expr& arg, const Expr& other, bool right) {
    // Beside an i64 an int literal is converted anyway; unsigned bit patterns read best in
    // hexadecimal.
    if (ir::is_constant(arg) && arg->type == DType::i64 && !ir::is_constant(other) &&
        fits_int(arg->integer) && arg->integer >= 0) {
      return fmt::format("{}", arg->integer);
    }
    if (ir::is_constant(arg) && is_bitwise(e->op) && arg->integer > 9) {
      return integer_literal(arg->type, arg->integer, true);
    }
    if (is_widened_by(arg, other, right))
      return at(arg->args[0], role, operand_precedence(e->op, right));
    Precedence outer = operand_precedence(e->op, right);
    if (arg->op == e->op && is_associative(e->op, e->type)) outer = op.precedence;
    return at(arg, role, outer);
  };
  Text text{fmt::format("{} {} {}", operand(a, b, false), op.symbol, operand(b, a, true)),
            op.precedence};
  if (!is_promoted(e->type) || is_bitwise(e->op)) return text;
  // Computed as int, then wrapped to the type. The product of two u16 needs an unsigned int.
  if (e->type == DType::u16 && e->op == Op::mul) {
    text.text = fmt::format("{}({}) * {}", type(DType::u32), argument(a, role),
                            at(b, role, Precedence::unary));
  }
  return {fmt::format("{}({})", type(e->type), text.text)};
}

// Small floats compute in f32 and round the result.
Text ExpressionPrinter::arithmetic_f32(const Expr& e, Role role) {
  const Operator op = infix(e->op);
  if (*op.symbol == '\0') {
    return convert(e->type, DType::f32, function(e, role));
  }
  TESSERA_CHECK(e->op != Op::mod && !is_bitwise(e->op),
                fmt::format("{} of {}", ir::name(e->op), name(e->type)));
  const std::string left = as_f32(e->args[0], role, operand_precedence(e->op, false));
  const std::string right = as_f32(e->args[1], role, operand_precedence(e->op, true));
  return convert(e->type, DType::f32,
                 {fmt::format("{} {} {}", left, op.symbol, right), op.precedence});
}

// Calls of CUDA's own functions: f32 for every float, else integers.
Text ExpressionPrinter::function(const Expr& e, Role role) {
  const auto callee = [&]() -> const char* {
    const bool floating = is_float(e->type);
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
      case Op::exp:
        return "expf";
      case Op::log1p:
        return "log1pf";
      case Op::tanh:
        return "tanhf";
      default:
        internal_error(fmt::format("{} of {}", ir::name(e->op), name(e->type)), e->loc);
    }
  };
  std::string text = callee();
  for (size_t i = 0; i < e->args.size(); ++i) {
    const Expr& arg = e->args[i];
    text += i == 0 ? "(" : ", ";
    text += is_float(arg->type) ? as_f32(arg, role, Precedence::lowest) : argument(arg, role);
  }
  return {text + ")"};
}

Text ExpressionPrinter::comparison(const Expr& e, Role role) {
  const Expr& a = e->args[0];
  if (!is_float(a->type)) return binary(e, role);
  const Operator op = infix(e->op);
  const std::string left = as_f32(a, role, operand_precedence(e->op, false));
  const std::string right = as_f32(e->args[1], role, operand_precedence(e->op, true));
  return {fmt::format("{} {} {}", left, op.symbol, right), op.precedence};
}

Text ExpressionPrinter::shift(const Expr& e, Role role) {
  const Expr& x = e->args[0];
  const Expr& amount = e->args[1];
  const bool left = e->op == Op::shl;
  Text text;
  if (ir::is_constant(amount) && amount->integer >= 0 && amount->integer < bits(e->type)) {
    text = {fmt::format("{} {} {}", at(x, role, Precedence::unary), left ? "<<" : ">>",
                        amount->integer),
            Precedence::shift};
  } else {
    // The device function knows 32 and 64 bits.
    std::string operand = argument(x, role);
    if (is_promoted(e->type)) {
      operand = fmt::format("{}({})", type(is_signed(e->type) ? DType::i32 : DType::u32), operand);
    }
    text = {fmt::format("{}({}, {})", call(left ? "shift_left" : "shift_right"), operand,
                        argument(amount, role))};
  }
  if (is_promoted(e->type)) text = {fmt::format("{}({})", type(e->type), text.text)};
  return text;
}

// On floats these touch nothing but the sign bit.
Text ExpressionPrinter::sign_operation(const Expr& e, Role role) {
  const Expr& a = e->args[0];
  if (is_small_float(e->type)) {
    const uint32_t sign = float_bits(e->type, -0.0);
    const std::string bare = at(a, role, Precedence::unary);
    if (e->op == Op::neg) return {fmt::format("{} ^ 0x{:X}", bare, sign), Precedence::bit_xor};
    const std::string magnitude = fmt::format("{} & 0x{:X}", bare, sign - 1);
    if (e->op == Op::abs) return {magnitude, Precedence::bit_and};
    return {fmt::format("({}) | ({} & 0x{:X})", magnitude, at(e->args[1], role, Precedence::unary),
                        sign),
            Precedence::bit_or};
  }
  if (e->op == Op::copysign) {
    return {fmt::format("copysignf({}, {})", argument(a, role), argument(e->args[1], role))};
  }
  if (e->op == Op::abs) {
    if (e->type == DType::f32) return {fmt::format("fabsf({})", argument(a, role))};
    if (!is_signed(e->type)) return print(a, role);
    const bool wide = is_wide(e->type);
    const std::string magnitude =
        fmt::format("{}({})", wide ? call("wrapping_abs") : "abs", argument(a, role));
    return {wide ? magnitude : fmt::format("{}({})", type(e->type), magnitude)};
  }
  if ((e->type == DType::i32 || e->type == DType::i64) && role == Role::value &&
      usage_.depends_on_data(e)) {
    return {fmt::format("{}({}, {})", call("wrapping_sub"), integer_literal(e->type, 0),
                        argument(a, role))};
  }
  // "- -x", because "--x" is another operator.
  std::string operand = at(a, role, Precedence::unary);
  const char* minus = operand.front() == '-' ? "- " : "-";
  const Text text{minus + operand, Precedence::unary};
  if (is_promoted(e->type)) return {fmt::format("{}({})", type(e->type), text.text)};
  return text;
}

Text ExpressionPrinter::select(const Expr& e, Role role) {
  return {fmt::format("{} ? {} : {}", at(e->args[0], role, Precedence::logical_or),
                      at(e->args[1], role, Precedence::conditional),
                      at(e->args[2], role, Precedence::conditional)),
          Precedence::conditional};
}

Text ExpressionPrinter::bitcast(const Expr& e, Role role) {
  const Expr& a = e->args[0];
  const DType to = e->type;
  const DType from = a->type;
  const std::string operand = argument(a, role);
  if (to == DType::f32) {
    return {
        fmt::format("{}({})", from == DType::u32 ? "__uint_as_float" : "__int_as_float", operand)};
  }
  if (from == DType::f32) {
    return {
        fmt::format("{}({})", to == DType::u32 ? "__float_as_uint" : "__float_as_int", operand)};
  }
  if (to == DType::boolean)
    return {at(a, role, Precedence::relational) + " != 0", Precedence::equality};
  return {fmt::format("{}({})", type(to), operand)};
}

}  // namespace tessera::codegen::cuda
