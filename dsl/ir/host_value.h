#pragma once
// Values that the host computes before a launch, as those of grid extents.

#include "dsl/ir/expr.h"

namespace tessera::ir {

constexpr int kMostHostDepth = 32;  // values that wait for an operation, at one time

/// True for an operation that the host computes: integer arithmetic, comparisons, min, max, select and casts.
bool is_host_operation(const Node& node);

/// The values that wait at one time while the expression is computed, its own included.
int host_depth(const Expr& expr);

/// True if the host knows the value before a launch: such operations over constants, dims and scalars, at most
/// kMostHostDepth deep.
bool is_known_at_launch(const Expr& expr);

}  // namespace tessera::ir
