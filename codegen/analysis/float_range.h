#pragma once
// What is known of a float without running the program.

#include <functional>

#include "dsl/ir/expr.h"

namespace tessera::codegen {

/// Every value lies in [low, high], or is a NaN where that is possible.
struct FloatRange {
  double low, high;
  bool may_be_nan;
};

/// The range that constants and comparisons with them give an expression. `definition` knows what a
/// variable was bound to, null if it was not bound to an expression.
///
///   float_range(max(x, 1e-4f)) is {1e-4, infinity, false}
FloatRange float_range(const ir::Expr& e,
                       const std::function<ir::Expr(const ir::Var&)>& definition);

}  // namespace tessera::codegen
