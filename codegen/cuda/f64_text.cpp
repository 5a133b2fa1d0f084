// The f64 part of ExpressionPrinter. A GPU says which NaN f64 arithmetic gives less clearly than the language
// does, so results that may be seen as bits pass canonical_nan_f64.

#include <fmt/format.h>

#include "codegen/cuda/expression.h"
#include "codegen/cuda/literal.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {

using ir::Op;

bool ExpressionPrinter::is_f64_operation(const ir::Node& node) {
  const bool moves = node.op == Op::cast || node.op == Op::bitcast;
  return !moves && !node.args.empty() && node.args[0]->type == DType::f64;
}

Text ExpressionPrinter::f64_operation(const Expr& e, ValueRole role) {
  const auto calls = [&](const std::string& function) {
    std::string text = function;
    for (size_t i = 0; i < e->args.size(); ++i) {
      text += (i == 0 ? "(" : ", ") + argument(e, i, role);
    }
    return text + ")";
  };
  const auto seen = [&](Text text) -> Text {
    if (role != ValueRole::value) return text;
    return {fmt::format("{}({})", call("canonical_nan_f64"), text.text)};
  };
  switch (e->op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::lt:
    case Op::le:
    case Op::eq:
    case Op::ne: {
      const Operator op = infix(e->op);
      Text text{fmt::format("{} {} {}", argument(e, 0, role, operand_precedence(e->op, false)),
                            op.symbol, argument(e, 1, role, operand_precedence(e->op, true))),
                op.precedence};
      return e->type == DType::f64 ? seen(std::move(text)) : text;
    }
    case Op::fma:
      return seen({calls("__fma_rn")});
    case Op::sqrt:
      return seen({calls("__dsqrt_rn")});
    case Op::floor:
    case Op::ceil:
    case Op::rint:
      return seen({calls(fmt::format("::{}", ir::name(e->op)))});
    case Op::min:
    case Op::max:
    case Op::neg:
    case Op::abs:
    case Op::copysign:
    case Op::is_nan:
    case Op::is_inf:
      return {calls(call(fmt::format("{}_f64", ir::name(e->op))))};
    default:
      internal_error(fmt::format("{} of f64", ir::name(e->op)), e->loc);
  }
}

Text ExpressionPrinter::convert_f64(DType to, DType from, Text operand, ValueRole role) {
  if (to == DType::boolean) {
    return {fmt::format("{} != 0.0", parenthesise(std::move(operand), Precedence::relational)),
            Precedence::equality};
  }
  if (to == DType::f64) {
    const bool seen = is_float(from) && role == ValueRole::value;
    if (is_small_float(from)) operand = widen(from, std::move(operand));
    Text wide{fmt::format("double({})", operand.text)};
    return seen ? Text{fmt::format("{}({})", call("canonical_nan_f64"), wide.text)} : wide;
  }
  if (to == DType::f32) {
    Text narrow{fmt::format("__double2float_rn({})", operand.text)};
    if (role != ValueRole::value) return narrow;
    return {fmt::format("{}({})", call("canonical_nan"), narrow.text)};
  }
  if (is_small_float(to)) {
    return {fmt::format("{}({}({}))", call(fmt::format("f32_to_{}", name(to))),
                        call("f64_to_f32_odd"), operand.text)};
  }
  return {fmt::format("{}({})", call(fmt::format("f64_to_{}", name(to))), operand.text)};
}

}  // namespace tessera::codegen::cuda
