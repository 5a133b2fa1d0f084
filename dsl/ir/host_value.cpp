#include "dsl/ir/host_value.h"

#include <algorithm>

#include "dsl/ir/integer.h"

namespace tessera::ir {
namespace {

bool is_of_launch(const Expr& expr) {
  if (!is_host_operation(*expr)) return false;
  if (expr->op == Op::var) {
    return expr->var->kind == VarKind::dim || expr->var->kind == VarKind::scalar;
  }
  return std::all_of(expr->args.begin(), expr->args.end(), is_of_launch);
}

}  // namespace

bool is_host_operation(const Node& node) {
  if (is_float(node.type)) return false;
  const bool has_value =
      node.args.size() == 2 && compute_exactly(node.op, DType::i64, 1, 1).has_value();
  return has_value || node.op == Op::constant || node.op == Op::var || node.op == Op::cast ||
         node.op == Op::select;
}

int host_depth(const Expr& expr) {
  int depth = 1;
  for (size_t i = 0; i < expr->args.size(); ++i) {
    depth = std::max(depth, static_cast<int>(i) + host_depth(expr->args[i]));
  }
  return depth;
}

bool is_known_at_launch(const Expr& expr) {
  return is_of_launch(expr) && host_depth(expr) <= kMostHostDepth;
}

}  // namespace tessera::ir
