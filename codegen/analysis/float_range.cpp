#include "codegen/analysis/float_range.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::codegen {

FloatRange float_range(const ir::Expr& e,
                       const std::function<ir::Expr(const ir::Var&)>& definition) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const FloatRange unknown{-kInfinity, kInfinity, true};
  const auto argument = [&](size_t i) { return float_range(e->args[i], definition); };
  switch (e->op) {
    case ir::Op::constant:
      if (std::isnan(e->number)) return unknown;
      return {e->number, e->number, false};
    case ir::Op::var: {
      const ir::Expr bound = definition(*e->var);
      return bound ? float_range(bound, definition) : unknown;
    }
    case ir::Op::max:
    case ir::Op::min: {
      const FloatRange a = argument(0), b = argument(1);
      // A NaN loses: the result is the other operand.
      const auto extreme = [&](double x, double y) {
        return e->op == ir::Op::max ? std::max(x, y) : std::min(x, y);
      };
      FloatRange result{extreme(a.low, b.low), extreme(a.high, b.high),
                        a.may_be_nan && b.may_be_nan};
      for (const auto& [nan, other] : {std::pair(a, b), std::pair(b, a)}) {
        if (!nan.may_be_nan) continue;
        result.low = std::min(result.low, other.low);
        result.high = std::max(result.high, other.high);
      }
      return result;
    }
    default:
      return unknown;
  }
}

}  // namespace tessera::codegen
