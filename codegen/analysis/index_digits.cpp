// IndexMath: division and modulo by constants, resolved where digits do not carry.

#include "codegen/analysis/form_parts.h"

namespace tessera::codegen {

using ir::Expr;
using ir::Op;

/// rest = unit * high + low with 0 <= low < unit and unit | by: only high can carry into rest / by.
std::optional<IndexMath::DigitSplit> IndexMath::split_digit(const Form& rest, int64_t by) const {
  for (const Term& pick : rest.terms) {
    DigitSplit split;
    split.unit = std::abs(pick.coefficient);
    if (split.unit == 1 || by % split.unit != 0) continue;
    for (const Term& term : rest.terms) {
      if (term.coefficient % split.unit == 0) {
        split.high.terms.push_back({term.atom, term.coefficient / split.unit});
      } else {
        split.low.terms.push_back(term);
      }
    }
    split.low.constant = rest.constant % split.unit;
    split.high.constant = rest.constant / split.unit;
    if (contains({0, split.unit - 1}, range(split.low))) return split;
  }
  return std::nullopt;
}

/// f / by for f >= 0: f = by * q + r; the part of r below one digit never carries.
Form IndexMath::divide(const Form& f, int64_t by, DType type) const {
  if (by == 1) return f;
  Form quotient;
  Form rest;
  for (const Term& term : f.terms) {
    if (term.coefficient % by == 0) {
      quotient.terms.push_back({term.atom, term.coefficient / by});
    } else {
      rest.terms.push_back(term);
    }
  }
  rest.constant = ((f.constant % by) + by) % by;
  quotient.constant = (f.constant - rest.constant) / by;
  const Interval rest_range = range(rest);
  if (contains({0, by - 1}, rest_range)) return quotient;
  if (!is_natural(rest_range)) {
    return atom_form(ir::binary(Op::div, to_expr(f, type), ir::constant(type, by)));
  }
  if (const auto split = split_digit(rest, by))
    return add(quotient, divide(split->high, by / split->unit, type));
  if (rest.terms.size() == 1 && rest.terms[0].coefficient == 1 && rest.constant == 0) {
    const Expr& atom = rest.terms[0].atom;
    const bool by_constant = (atom->op == Op::div || atom->op == Op::mod) &&
                             ir::is_constant(atom->args[1]) && atom->args[1]->integer > 0;
    const std::optional<Form> whole = by_constant ? natural(atom->args[0], false) : std::nullopt;
    const int64_t inner_by = by_constant ? atom->args[1]->integer : 1;
    const std::optional<int64_t> both = product(by, inner_by);
    if (whole && atom->op == Op::div && both && *both <= limits_of(DType::i32).high) {
      return add(quotient, divide(*whole, *both, type));
    }
    if (whole && atom->op == Op::mod && inner_by % by == 0) {
      return add(quotient, modulo(divide(*whole, by, type), inner_by / by, type));
    }
  }
  return add(quotient, atom_form(ir::binary(Op::div, to_expr(rest, type), ir::constant(type, by))));
}

Form IndexMath::modulo(const Form& f, int64_t by, DType type) const {
  Form rest;
  for (const Term& term : f.terms) {
    if (term.coefficient % by != 0) rest.terms.push_back(term);
  }
  rest.constant = ((f.constant % by) + by) % by;
  const Interval rest_range = range(rest);
  if (contains({0, by - 1}, rest_range)) return rest;
  if (!is_natural(rest_range)) {
    return atom_form(ir::binary(Op::mod, to_expr(f, type), ir::constant(type, by)));
  }
  if (const auto split = split_digit(rest, by))
    return add(split->low, modulo(split->high, by / split->unit, type), split->unit);
  if (rest.terms.size() == 1 && rest.terms[0].coefficient == 1 && rest.constant == 0) {
    const Expr& atom = rest.terms[0].atom;
    if (atom->op == Op::mod && ir::is_constant(atom->args[1]) && atom->args[1]->integer % by == 0) {
      if (const std::optional<Form> whole = natural(atom->args[0], false))
        return modulo(*whole, by, type);
    }
  }
  return atom_form(ir::binary(Op::mod, to_expr(rest, type), ir::constant(type, by)));
}

}  // namespace tessera::codegen
