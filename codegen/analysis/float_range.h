#pragma once
// Static ranges of float expressions.

#include <functional>

#include "dsl/ir/expr.h"

namespace tessera::codegen {

/// Every value is in [low, high], or NaN if that is possible.
struct FloatRange {
  double low, high;
  bool may_be_nan;
};

/// Derives the range of an expression from constants and comparisons with them. `definition`
/// returns what a variable was bound to, null if that is no expression.
///
///   float_range(max(x, 1e-4f)) is {1e-4, infinity, false}
FloatRange float_range(const ir::Expr& e,
                       const std::function<ir::Expr(const ir::Var&)>& definition);

}  // namespace tessera::codegen
