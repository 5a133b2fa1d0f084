#include "codegen/analysis/int_range.h"

#include "dsl/ir/extents.h"

namespace tessera::codegen {

using ir::Op;

Interval IntRanges::of(const ir::Expr& e) {
  const Interval values = exact(e);
  return fits(values, e->type) ? values : limits_of(e->type);
}

bool IntRanges::may_wrap(const ir::Expr& e) {
  return !fits(exact(e), e->type);
}

/// On mathematical integers.
Interval IntRanges::exact(const ir::Expr& e) {
  if (e->op == Op::constant) return {e->integer, e->integer};
  if (e->op == Op::var) return of_variable(*e->var);
  if (e->args.empty()) return {};
  if (is_float(e->args[0]->type)) {
    return e->type == DType::boolean ? limits_of(e->type) : Interval{};
  }
  const bool chooses = e->op == Op::select;
  return interval_of(e->op, of(e->args[chooses ? 1 : 0]), of(e->args.back()));
}

Interval IntRanges::of_variable(const ir::Var& var) {
  const auto found = known_.find(&var);
  if (found != known_.end()) return found->second;
  Interval values = limits_of(var.type);
  if (const ir::Expr bound = definition_(var)) {
    constexpr int kMostDefinitions = 32;  // chained; bounds the recursion
    if (looked_through_ == kMostDefinitions) return values;
    ++looked_through_;
    values = of(bound);
    --looked_through_;
  } else if (var.kind == ir::VarKind::thread) {
    values = {0, threads_ - 1};
  } else {
    if (var.kind == ir::VarKind::block) {
      const int64_t most_blocks = var.axis == 0 ? *values.high : ir::kMostBlocksYZ;
      values = {0, most_blocks - 1};
    }
    if (var.lower) values = intersect(values, {of(var.lower).low, {}});
    if (var.upper) {
      values = intersect(values, {{}, interval_of(Op::sub, of(var.upper), {1, 1}).high});
    }
  }
  known_.emplace(&var, values);
  return values;
}

}  // namespace tessera::codegen
