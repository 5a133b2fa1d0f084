#include "codegen/cuda/expression.h"

#include <fmt/format.h>

#include <cmath>

#include "codegen/cuda/literal.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {
using ir::Op;

const std::string& ExpressionPrinter::call(std::string_view name) {
  return *called_.emplace(name).first;
}

std::string ExpressionPrinter::type(DType type) {
  return is_builtin(type) ? std::string(type_name(type)) : call(type_name(type));
}

std::string ExpressionPrinter::print(const Expr& e, ValueRole role, Precedence outer) {
  return parenthesise(text(e, role), outer);
}

std::string ExpressionPrinter::argument(const Expr& e, size_t i, ValueRole role, Precedence outer) {
  return print(e->args[i], argument_role(*e, i, role), outer);
}

Text ExpressionPrinter::text(const Expr& e, ValueRole role) {
  if (is_f64_operation(*e)) return f64_operation(e, role);
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
    const bool unary = !is_small_float(node.type) && std::signbit(node.number);
    return {float_literal(node.type, node.number), unary ? Precedence::unary : Precedence::primary};
  }
  const std::string literal = integer_literal(node.type, node.integer);
  return {literal, literal.front() == '-' ? Precedence::unary : Precedence::primary};
}

Text ExpressionPrinter::variable(const ir::Var& var) {
  const Load* load = usage_.inlined_load(var);
  if (load == nullptr) return {names_.of(&var)};
  return element(load->from);
}

Text ExpressionPrinter::comparison(const Expr& e, ValueRole role) {
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

Text ExpressionPrinter::select(const Expr& e, ValueRole role) {
  if (std::optional<Text> text = extreme_with_nan(e)) return *std::move(text);
  return {fmt::format("{} ? {} : {}", argument(e, 0, role, Precedence::logical_or),
                      argument(e, 1, role, Precedence::logical_or),
                      argument(e, 2, role, Precedence::conditional)),
          Precedence::conditional};
}

}  // namespace tessera::codegen::cuda
