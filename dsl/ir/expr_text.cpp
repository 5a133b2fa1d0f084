// Expressions as text.

#include <fmt/format.h>

#include "dsl/ir/expr.h"

namespace tessera::ir {
namespace {

int precedence(Op op) {
  switch (op) {
    case Op::mul:
    case Op::div:
    case Op::mod:
      return 10;
    case Op::add:
    case Op::sub:
      return 9;
    case Op::shl:
    case Op::shr:
      return 8;
    case Op::lt:
    case Op::le:
      return 7;
    case Op::eq:
    case Op::ne:
      return 6;
    case Op::bit_and:
      return 5;
    case Op::bit_xor:
      return 4;
    case Op::bit_or:
      return 3;
    case Op::logical_and:
      return 2;
    case Op::logical_or:
      return 1;
    default:
      return 20;
  }
}

std::string_view symbol(Op op) {
  switch (op) {
    case Op::add:
      return "+";
    case Op::sub:
      return "-";
    case Op::mul:
      return "*";
    case Op::div:
      return "/";
    case Op::mod:
      return "%";
    case Op::shl:
      return "<<";
    case Op::shr:
      return ">>";
    case Op::lt:
      return "<";
    case Op::le:
      return "<=";
    case Op::eq:
      return "==";
    case Op::ne:
      return "!=";
    case Op::bit_and:
      return "&";
    case Op::bit_xor:
      return "^";
    case Op::bit_or:
      return "|";
    case Op::logical_and:
      return "&&";
    case Op::logical_or:
      return "||";
    default:
      return "";
  }
}

void print(const Expr& e, int parent, std::string& out) {
  switch (e->op) {
    case Op::constant:
      if (is_float(e->type)) {
        out += fmt::format("{}", e->number);
      } else {
        out += fmt::format("{}", e->integer);
      }
      return;
    case Op::var:
      out += e->var->name;
      return;
    case Op::neg:
    case Op::logical_not:
      out += e->op == Op::neg ? "-" : "!";
      print(e->args[0], 15, out);
      return;
    case Op::cast:
    case Op::bitcast:
      out += fmt::format("{}<{}>(", name(e->op), name(e->type));
      print(e->args[0], 0, out);
      out += ")";
      return;
    default:
      break;
  }
  if (!symbol(e->op).empty()) {
    const int own = precedence(e->op);
    if (own < parent) out += "(";
    print(e->args[0], own, out);
    out += fmt::format(" {} ", symbol(e->op));
    print(e->args[1], own + 1, out);
    if (own < parent) out += ")";
    return;
  }
  out += fmt::format("{}(", name(e->op));
  for (size_t i = 0; i < e->args.size(); ++i) {
    if (i > 0) out += ", ";
    print(e->args[i], 0, out);
  }
  out += ")";
}

}  // namespace

std::string_view name(Op op) {
  switch (op) {
    case Op::constant:
      return "constant";
    case Op::var:
      return "var";
    case Op::add:
      return "add";
    case Op::sub:
      return "sub";
    case Op::mul:
      return "mul";
    case Op::div:
      return "div";
    case Op::mod:
      return "mod";
    case Op::min:
      return "min";
    case Op::max:
      return "max";
    case Op::bit_and:
      return "bit_and";
    case Op::bit_or:
      return "bit_or";
    case Op::bit_xor:
      return "bit_xor";
    case Op::shl:
      return "shl";
    case Op::shr:
      return "shr";
    case Op::lt:
      return "lt";
    case Op::le:
      return "le";
    case Op::eq:
      return "eq";
    case Op::ne:
      return "ne";
    case Op::logical_and:
      return "logical_and";
    case Op::logical_or:
      return "logical_or";
    case Op::logical_not:
      return "logical_not";
    case Op::select:
      return "select";
    case Op::cast:
      return "cast";
    case Op::bitcast:
      return "bitcast";
    case Op::neg:
      return "neg";
    case Op::abs:
      return "abs";
    case Op::fma:
      return "fma";
    case Op::sqrt:
      return "sqrt";
    case Op::rsqrt:
      return "rsqrt";
    case Op::round_tf32:
      return "round_tf32";
    case Op::f16x2_toward_zero:
      return "f16x2_toward_zero";
    case Op::exp:
      return "exp";
    case Op::silu:
      return "silu";
    case Op::exp2:
      return "exp2";
    case Op::log:
      return "log";
    case Op::log2:
      return "log2";
    case Op::log1p:
      return "log1p";
    case Op::sin:
      return "sin";
    case Op::cos:
      return "cos";
    case Op::tanh:
      return "tanh";
    case Op::erf:
      return "erf";
    case Op::floor:
      return "floor";
    case Op::ceil:
      return "ceil";
    case Op::rint:
      return "rint";
    case Op::exp2_approx:
      return "exp2_approx";
    case Op::log2_approx:
      return "log2_approx";
    case Op::sin_approx:
      return "sin_approx";
    case Op::cos_approx:
      return "cos_approx";
    case Op::tanh_approx:
      return "tanh_approx";
    case Op::copysign:
      return "copysign";
    case Op::is_nan:
      return "is_nan";
    case Op::is_inf:
      return "is_inf";
    case Op::mulhi:
      return "mulhi";
    case Op::popcount:
      return "popcount";
    case Op::clz:
      return "clz";
    case Op::ffs:
      return "ffs";
  }
  return "?";
}

bool counts_bits(Op op) {
  return op == Op::popcount || op == Op::clz || op == Op::ffs;
}

std::string to_string(const Expr& e) {
  if (!e) return "<none>";
  std::string out;
  print(e, 0, out);
  return out;
}

}  // namespace tessera::ir
