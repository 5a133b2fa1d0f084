#include "dsl/ir/expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "dsl/base/error.h"
#include "dsl/ir/integer.h"

namespace tessera::ir {
namespace {

/// Folds two integer constants; nothing if the result is left to the machine.
std::optional<int64_t> fold(Op op, DType type, int64_t a, int64_t b) {
  const bool divides = op == Op::div || op == Op::mod;
  if (divides && (b == 0 || b == -1)) return std::nullopt;
  if (op == Op::logical_and || op == Op::logical_or) return std::nullopt;
  return compute(op, type, a, b);
}

Expr make(Op op, DType type, std::vector<Expr> args, SourceLoc loc) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->type = type;
  node->args = std::move(args);
  node->loc = loc;
  return Expr(std::move(node));
}

}  // namespace

Expr constant(DType type, int64_t value) {
  TESSERA_CHECK(!is_float(type), "an integer constant of a float dtype");
  auto node = std::make_shared<Node>();
  node->type = type;
  node->integer = wrap(type, value);
  return Expr(std::move(node));
}

Expr float_constant(DType type, double value) {
  TESSERA_CHECK(is_float(type), "a float constant of an integer dtype");
  auto node = std::make_shared<Node>();
  node->type = type;
  node->number = value;
  return Expr(std::move(node));
}

Expr index(int64_t value) {
  const bool narrow = value == static_cast<int32_t>(value);
  return constant(narrow ? DType::i32 : DType::i64, value);
}

Expr var(VarRef v) {
  auto node = std::make_shared<Node>();
  node->op = Op::var;
  node->type = v->type;
  node->loc = v->loc;
  node->var = std::move(v);
  return Expr(std::move(node));
}

Expr binary(Op op, Expr a, Expr b, SourceLoc loc) {
  const bool shift = op == Op::shl || op == Op::shr;
  if (!shift && a->type != b->type) {
    // Index arithmetic mixes i32 and i64; all other conversions are explicit.
    const bool indices = (a->type == DType::i32 || a->type == DType::i64) &&
                         (b->type == DType::i32 || b->type == DType::i64);
    TESSERA_CHECK(indices, fmt::format("{} of {} and {}", name(op), name(a->type), name(b->type)));
    a = cast(DType::i64, std::move(a), loc);
    b = cast(DType::i64, std::move(b), loc);
  }
  const DType type = a->type;
  if (!is_float(type) && !shift) {
    if (is_constant(a) && is_constant(b)) {
      const std::optional<int64_t> folded = fold(op, type, a->integer, b->integer);
      if (folded) return constant(is_comparison(op) ? DType::boolean : type, *folded);
    }
    switch (op) {
      case Op::add:
        if (is_constant(a, 0)) return b;
        if (is_constant(b, 0)) return a;
        break;
      case Op::sub:
        if (is_constant(b, 0)) return a;
        break;
      case Op::mul:
        if (is_constant(a, 0) || is_constant(b, 1)) return a;
        if (is_constant(b, 0) || is_constant(a, 1)) return b;
        break;
      case Op::div:
        if (is_constant(b, 1) || is_constant(a, 0)) return a;
        break;
      case Op::mod:
        if (is_constant(b, 1)) return constant(type, 0);
        if (is_constant(a, 0)) return a;
        break;
      case Op::logical_and:
        if (is_constant(a)) return a->integer != 0 ? b : a;
        if (is_constant(b)) return b->integer != 0 ? a : b;
        break;
      case Op::logical_or:
        if (is_constant(a)) return a->integer != 0 ? a : b;
        if (is_constant(b)) return b->integer != 0 ? b : a;
        break;
      default:
        break;
    }
  }
  const DType result = is_comparison(op) ? DType::boolean : type;
  return make(op, result, {std::move(a), std::move(b)}, loc);
}

Expr unary(Op op, Expr a, SourceLoc loc) {
  if (op == Op::logical_not && is_constant(a)) return constant(DType::boolean, a->integer == 0);
  if (op == Op::neg && is_constant(a) && !is_float(a->type)) return constant(a->type, -a->integer);
  if (op == Op::abs && is_integer(a->type) && !is_signed(a->type)) return a;
  DType type = a->type;
  if (op == Op::is_nan || op == Op::is_inf || op == Op::logical_not) type = DType::boolean;
  if (counts_bits(op)) type = DType::i32;
  return make(op, type, {std::move(a)}, loc);
}

Expr call(Op op, DType type, std::vector<Expr> args, SourceLoc loc) {
  return make(op, type, std::move(args), loc);
}

Expr select(Expr condition, Expr then, Expr otherwise, SourceLoc loc) {
  TESSERA_CHECK(then->type == otherwise->type, "select of two dtypes");
  if (is_constant(condition)) return condition->integer != 0 ? then : otherwise;
  const DType type = then->type;
  return make(Op::select, type, {std::move(condition), std::move(then), std::move(otherwise)}, loc);
}

Expr cast(DType type, Expr a, SourceLoc loc) {
  if (a->type == type) return a;
  if (is_constant(a) && !is_float(a->type) && !is_float(type)) return constant(type, a->integer);
  return make(Op::cast, type, {std::move(a)}, loc);
}

Expr bitcast(DType type, Expr a, SourceLoc loc) {
  if (a->type == type) return a;
  TESSERA_CHECK(bits(a->type) == bits(type), "bitcast between widths");
  return make(Op::bitcast, type, {std::move(a)}, loc);
}

bool is_constant(const Expr& e) {
  return e && e->op == Op::constant;
}
bool is_constant(const Expr& e, int64_t value) {
  return is_constant(e) && !is_float(e->type) && e->integer == value;
}

bool equal(const Expr& a, const Expr& b) {
  if (a.get() == b.get()) return true;
  if (!a || !b) return false;
  if (a->op != b->op || a->type != b->type || a->args.size() != b->args.size()) return false;
  if (a->op == Op::var) return a->var == b->var;
  if (a->op == Op::constant) {
    const bool same_number =
        a->number == b->number && std::signbit(a->number) == std::signbit(b->number);
    return a->integer == b->integer &&
           (same_number || (std::isnan(a->number) && std::isnan(b->number)));
  }
  for (size_t i = 0; i < a->args.size(); ++i) {
    if (!equal(a->args[i], b->args[i])) return false;
  }
  return true;
}

void collect_vars(const Expr& e, std::vector<VarRef>& out) {
  if (e->op == Op::var) {
    if (std::find(out.begin(), out.end(), e->var) == out.end()) out.push_back(e->var);
    return;
  }
  for (const Expr& arg : e->args) collect_vars(arg, out);
}

Expr rebuild(const Node& node, std::vector<Expr> args) {
  switch (node.op) {
    case Op::select:
      return select(args[0], args[1], args[2], node.loc);
    case Op::cast:
      return cast(node.type, args[0], node.loc);
    case Op::bitcast:
      return bitcast(node.type, args[0], node.loc);
    case Op::fma:
      return call(Op::fma, node.type, std::move(args), node.loc);
    default:
      break;
  }
  if (args.size() == 1) return unary(node.op, args[0], node.loc);
  if (node.op == Op::copysign || node.op == Op::f16x2_toward_zero) {
    return call(node.op, node.type, std::move(args), node.loc);
  }
  return binary(node.op, args[0], args[1], node.loc);
}

}  // namespace tessera::ir
