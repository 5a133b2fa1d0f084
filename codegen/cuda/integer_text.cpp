// The integer part of ExpressionPrinter: wrapping, promotion, and ints beside an i64.

#include <fmt/format.h>

#include <algorithm>

#include "codegen/analysis/int_range.h"
#include "codegen/cuda/expression.h"
#include "codegen/cuda/literal.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {
namespace {

using ir::Op;

/// a + (b + c), where the order of the additions cannot matter.
bool is_associative(Op op, DType type) {
  return !is_float(type) && (op == Op::add || op == Op::mul || op == Op::logical_and ||
                             op == Op::logical_or || is_bitwise(op));
}

bool is_widening(const Expr& e) {
  return e->op == Op::cast && e->type == DType::i64 && e->args[0]->type == DType::i32;
}

/// True if the text of the product, without parentheses, begins with a quotient or a remainder.
bool begins_with_division(const Expr& e) {
  if (e->op == Op::mul || is_widening(e)) return begins_with_division(e->args[0]);
  return e->op == Op::div || e->op == Op::mod;
}

/// True if operand `i` is printed in one chain with the operator: a + (b + c) as a + b + c.
bool is_chained(const Expr& e, size_t i) {
  const Expr& arg = e->args[i];
  if (arg->op != e->op || !is_associative(e->op, e->type)) return false;
  return i == 0 || e->op != Op::mul || !begins_with_division(arg);  // not a * b / c * d
}

/// The operands of the chain `e`, in the order of its text.
void add_terms(const Expr& e, std::vector<Expr>& terms) {
  for (size_t i = 0; i < 2; ++i) {
    if (is_chained(e, i)) {
      add_terms(e->args[i], terms);
    } else {
      terms.push_back(e->args[i]);
    }
  }
}

bool fits_int(int64_t value) {
  return value == static_cast<int32_t>(value);
}

bool is_int_beside_wide(const Expr& e, size_t i);

/// The int operands with which the text of the i64 chain `e` begins, combined; null if there are none.
Expr leading_ints(const Expr& e) {
  if (is_chained(e, 0)) return leading_ints(e->args[0]);
  if (!is_int_beside_wide(e, 0)) return {};
  const Expr next = is_chained(e, 1) ? leading_ints(e->args[1]) : Expr();
  return next ? ir::binary(e->op, e->args[0], next) : e->args[0];
}

/// True if `a` and `b` can be combined as int, before an i64 joins them, without overflow.
bool fits_int(Op op, const Expr& a, const Expr& b) {
  constexpr int kMostThreads = 1024;
  IntRanges ranges([](const ir::Var&) { return Expr(); }, kMostThreads);
  return fits(ranges.of(ir::binary(op, a, b)), DType::i32);
}

/// True if C++ itself converts the i64 operand `i`, a literal or i64(int), because it meets another
/// i64.
bool is_int_beside_wide(const Expr& e, size_t i) {
  const Expr &arg = e->args[i], &other = e->args[1 - i];
  const bool right = i == 1;
  if (ir::is_constant(other)) return false;
  const bool is_literal = ir::is_constant(arg) && arg->type == DType::i64 &&
                          fits_int(arg->integer) && arg->integer >= 0;
  // Where both are widened, only the left conversion is written.
  const bool is_widened = is_widening(arg) && (right || !is_widening(other));
  if (!is_literal && !is_widened) return false;
  const Expr next = !right && is_chained(e, 1) ? leading_ints(other) : Expr();
  return !next || fits_int(e->op, arg, next);
}

}  // namespace

// Integers and booleans.
Text ExpressionPrinter::integer_binary(const Expr& e, ValueRole role) {
  if (e->op == Op::min || e->op == Op::max) return function(e, role);
  const bool arithmetic = e->op == Op::add || e->op == Op::sub || e->op == Op::mul;
  const bool is_signed_wide = e->type == DType::i32 || e->type == DType::i64;
  if (arithmetic && is_signed_wide && may_wrap(e, role)) {
    return {fmt::format("{}({}, {})", call(fmt::format("wrapping_{}", ir::name(e->op))),
                        argument(e, 0, role), argument(e, 1, role))};
  }
  const Operator op = infix(e->op);
  TESSERA_CHECK(*op.symbol != '\0', fmt::format("{} of {}", ir::name(e->op), name(e->type)));
  const Text result{
      fmt::format("{} {} {}", integer_operand(e, 0, role), op.symbol, integer_operand(e, 1, role)),
      op.precedence};
  if (!is_promoted(e->type) || is_bitwise(e->op)) return result;
  // Computed as int, then wrapped to the type. The product of two u16 needs an unsigned int.
  if (e->type == DType::u16 && e->op == Op::mul) {
    return {fmt::format("{}({}({}) * {})", type(e->type), type(DType::u32), argument(e, 0, role),
                        argument(e, 1, role, Precedence::unary))};
  }
  return {fmt::format("{}({})", type(e->type), result.text)};
}

// In the program's order, or in that of the text, where a + (b + c) loses its parentheses.
bool ExpressionPrinter::may_wrap(const Expr& e, ValueRole role) const {
  if (usage_.may_wrap(e, role)) return true;
  if (!is_chained(e, 1)) return false;
  std::vector<Expr> terms;
  add_terms(e, terms);
  Expr prefix = terms[0];
  return std::any_of(terms.begin() + 1, terms.end(), [&](const Expr& term) {
    prefix = ir::binary(e->op, prefix, term);
    return prefix->op == e->op && usage_.may_wrap(prefix, role);
  });
}

std::string ExpressionPrinter::integer_operand(const Expr& e, size_t i, ValueRole role) {
  const Expr& arg = e->args[i];
  const bool is_int = is_int_beside_wide(e, i);
  if (is_int && ir::is_constant(arg)) return fmt::format("{}", arg->integer);
  // Bit patterns read best in hexadecimal.
  if (ir::is_constant(arg) && is_bitwise(e->op) && arg->integer > 9) {
    return integer_literal(arg->type, arg->integer, true);
  }
  const Precedence outer = operand_precedence(e->op, i == 1);
  if (is_int) return argument(arg, 0, role, outer);
  return argument(e, i, role, is_chained(e, i) ? infix(e->op).precedence : outer);
}

Text ExpressionPrinter::shift(const Expr& e, ValueRole role) {
  const Expr& amount = e->args[1];
  const bool left = e->op == Op::shl;
  Text result;
  if (ir::is_constant(amount) && amount->integer >= 0 && amount->integer < bits(e->type)) {
    result = {fmt::format("{} {} {}", argument(e, 0, role, Precedence::unary), left ? "<<" : ">>",
                          amount->integer),
              Precedence::shift};
  } else {
    // The device function knows 32 and 64 bits.
    std::string operand = argument(e, 0, role);
    if (is_promoted(e->type)) {
      operand = fmt::format("{}({})", type(is_signed(e->type) ? DType::i32 : DType::u32), operand);
    }
    result = {fmt::format("{}({}, {})", call(left ? "shift_left" : "shift_right"), operand,
                          argument(e, 1, role))};
  }
  if (is_promoted(e->type)) return {fmt::format("{}({})", type(e->type), result.text)};
  return result;
}

// Functions of integers that CUDA has for 32 and for 64 bits.
Text ExpressionPrinter::intrinsic(const Expr& e, ValueRole role) {
  const DType type = e->args[0]->type;
  const bool is_wide = bits(type) == 64;
  if (e->op == Op::mulhi) {
    return {fmt::format("__{}mul{}({}, {})", is_signed(type) ? "" : "u", is_wide ? "64hi" : "hi",
                        argument(e, 0, role), argument(e, 1, role))};
  }
  const char* name = e->op == Op::popcount ? "popc" : e->op == Op::clz ? "clz" : "ffs";
  return {fmt::format("__{}{}({})", name, is_wide ? "ll" : "", argument(e, 0, role))};
}

}  // namespace tessera::codegen::cuda
