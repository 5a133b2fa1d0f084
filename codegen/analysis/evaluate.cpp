#include "codegen/analysis/evaluate.h"

#include <algorithm>

namespace tessera::codegen {

std::optional<int64_t> evaluate(const ir::Expr& e, const Environment& environment) {
  using ir::Op;
  if (is_float(e->type)) return std::nullopt;
  switch (e->op) {
    case Op::constant:
      return e->integer;
    case Op::var:
      return environment.get(*e->var);
    case Op::cast:
      return evaluate(e->args[0], environment);
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
  return apply(e->op, *a, *b);
}

std::optional<int64_t> apply(ir::Op op, int64_t a, int64_t b) {
  using ir::Op;
  int64_t result = 0;
  switch (op) {
    case Op::add:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional<int64_t>(result);
    case Op::sub:
      return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional<int64_t>(result);
    case Op::mul:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional<int64_t>(result);
    case Op::div:
      if (b == 0) return std::nullopt;
      return b == -1 ? apply(Op::sub, 0, a) : std::optional<int64_t>(a / b);
    case Op::mod:
      return b == 0 ? std::nullopt : std::optional<int64_t>(b == -1 ? 0 : a % b);
    case Op::min:
      return std::min(a, b);
    case Op::max:
      return std::max(a, b);
    case Op::bit_and:
      return a & b;
    case Op::bit_or:
      return a | b;
    case Op::bit_xor:
      return a ^ b;
    case Op::lt:
      return a < b;
    case Op::le:
      return a <= b;
    case Op::eq:
      return a == b;
    case Op::ne:
      return a != b;
    case Op::logical_and:
      return a != 0 && b != 0;
    case Op::logical_or:
      return a != 0 || b != 0;
    default:
      return std::nullopt;
  }
}

}  // namespace tessera::codegen
