#include "codegen/analysis/evaluate.h"

#include "dsl/ir/integer.h"

namespace tessera::codegen {

std::optional<int64_t> evaluate(const ir::Expr& e, const Environment& environment) {
  using ir::Op;
  if (is_float(e->type)) return std::nullopt;
  switch (e->op) {
    case Op::constant:
      return e->integer;
    case Op::var:
      return environment.get(*e->var);
    case Op::cast: {
      const auto a = evaluate(e->args[0], environment);
      return a && ir::fits(e->type, *a) ? a : std::nullopt;
    }
    case Op::logical_not: {
      const auto a = evaluate(e->args[0], environment);
      if (!a) return std::nullopt;
      return *a == 0 ? 1 : 0;
    }
    case Op::select: {
      const auto test = evaluate(e->args[0], environment);
      if (!test) return std::nullopt;
      return evaluate(e->args[*test != 0 ? 1 : 2], environment);
    }
    default:
      break;
  }
  if (e->args.size() != 2) return std::nullopt;
  const auto a = evaluate(e->args[0], environment);
  const auto b = evaluate(e->args[1], environment);
  if (!a || !b) return std::nullopt;
  return ir::compute_exactly(e->op, e->args[0]->type, *a, *b);
}

}  // namespace tessera::codegen
