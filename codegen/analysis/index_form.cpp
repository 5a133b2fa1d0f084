#include "codegen/analysis/index_form.h"

#include <algorithm>
#include <bit>

#include "codegen/analysis/form_parts.h"

namespace tessera::codegen {
namespace {

using ir::Expr;
using ir::Op;

/// Place of an expression in the order: by what it depends on most.
int rank(const Expr& e) {
  if (e->op != Op::var) {
    int result = 0;
    for (const Expr& arg : e->args) result = std::max(result, rank(arg));
    return result;
  }
  switch (e->var->kind) {
    case ir::VarKind::block:
      return 1;
    case ir::VarKind::thread:
      return 3;
    case ir::VarKind::value:
      return 2;
    case ir::VarKind::loop:
      return 4;
    default:
      return 0;
  }
}

template <class T>
int three_way(T a, T b) {
  return a < b ? -1 : static_cast<int>(a > b);
}

/// The index types are one: what is computed in either is taken for the same integer. Not so what is
/// converted.
DType type_in_order(const ir::Node& e) {
  const bool converts = e.op == Op::cast || e.op == Op::bitcast;
  return !converts && e.type == DType::i64 ? DType::i32 : e.type;
}

Form scale(const Form& f, int64_t by) {
  if (by == 0) return {};
  Form result = f;
  result.constant *= by;
  for (Term& term : result.terms) term.coefficient *= by;
  return result;
}

bool within(const Range& range, int64_t low, int64_t high) {
  return range.low && range.high && *range.low >= low && *range.high <= high;
}

}  // namespace

int compare(const Expr& a, const Expr& b) {
  if (a.get() == b.get()) return 0;
  const int ra = rank(a);
  const int rb = rank(b);
  if (ra != rb) return ra < rb ? -1 : 1;
  if (a->op != b->op) return a->op < b->op ? -1 : 1;
  if (a->op == Op::var) return a->var->id - b->var->id;
  if (a->op == Op::constant) {
    const int c = three_way(a->integer, b->integer);
    if (c != 0) return c;
    return three_way(std::bit_cast<uint64_t>(a->number), std::bit_cast<uint64_t>(b->number));
  }
  if (a->args.size() != b->args.size()) return a->args.size() < b->args.size() ? -1 : 1;
  for (size_t i = 0; i < a->args.size(); ++i) {
    const int c = compare(a->args[i], b->args[i]);
    if (c != 0) return c;
  }
  return three_way(type_in_order(*a), type_in_order(*b));
}

Form constant_form(int64_t value) {
  Form f;
  f.constant = value;
  return f;
}

Form atom_form(Expr atom) {
  Form f;
  f.terms.push_back({std::move(atom), 1});
  return f;
}

bool is_index_cast(const Expr& e) {
  auto index = [](DType type) { return type == DType::i32 || type == DType::i64; };
  return e->op == Op::cast && index(e->type) && index(e->args[0]->type);
}

Form IndexMath::add(const Form& a, const Form& b, int64_t by) {
  Form result;
  result.constant = a.constant + by * b.constant;
  size_t i = 0;
  size_t j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    int order = 0;
    if (i == a.terms.size()) {
      order = 1;
    } else if (j == b.terms.size()) {
      order = -1;
    } else {
      order = compare(a.terms[i].atom, b.terms[j].atom);
    }
    if (order < 0) {
      result.terms.push_back(a.terms[i++]);
    } else if (order > 0) {
      result.terms.push_back({b.terms[j].atom, by * b.terms[j].coefficient});
      ++j;
    } else {
      const int64_t sum = a.terms[i].coefficient + by * b.terms[j].coefficient;
      if (sum != 0) result.terms.push_back({a.terms[i].atom, sum});
      ++i;
      ++j;
    }
  }
  return result;
}

void IndexMath::add_fact(const Expr& condition) {
  conditions_.push_back(condition);
  std::vector<Expr> open = {condition};
  while (!open.empty()) {
    const Expr e = open.back();
    open.pop_back();
    if (e->op == Op::logical_and) {
      open.push_back(e->args[0]);
      open.push_back(e->args[1]);
    } else if (e->op == Op::logical_not) {
      const Expr& inner = e->args[0];
      if (inner->op == Op::logical_not) {
        open.push_back(inner->args[0]);
      } else if (inner->op == Op::logical_or) {
        open.push_back(ir::unary(Op::logical_not, inner->args[0]));
        open.push_back(ir::unary(Op::logical_not, inner->args[1]));
      } else if (inner->op == Op::lt || inner->op == Op::le) {
        open.push_back(
            ir::binary(inner->op == Op::lt ? Op::le : Op::lt, inner->args[1], inner->args[0]));
      }
    } else if ((e->op == Op::lt || e->op == Op::le) && is_integer(e->args[0]->type)) {
      Form slack = add(form(e->args[1], true), form(e->args[0], true), -1);
      if (e->op == Op::lt) slack.constant -= 1;
      add_scaled_fact(slack);
      facts_.push_back(std::move(slack));
    }
  }
}

/// n / by + rest >= 0 is n + by * rest >= 0 for n >= 0: whole tiles below a count of tiles are inside
/// the extent.
void IndexMath::add_scaled_fact(const Form& slack) {
  for (const Term& term : slack.terms) {
    const Expr& atom = term.atom;
    if (term.coefficient != 1 || atom->op != Op::div || !ir::is_constant(atom->args[1])) continue;
    const int64_t by = atom->args[1]->integer;
    const Form whole = form(atom->args[0], true);
    if (by <= 0 || range(whole).low.value_or(-1) < 0) continue;
    const Form rest = add(slack, atom_form(atom), -1);
    facts_.push_back(add(whole, rest, by));
  }
}

Form IndexMath::form(const Expr& e, bool through_lets) const {
  switch (e->op) {
    case Op::constant:
      return constant_form(e->integer);
    case Op::var: {
      if (through_lets) {
        const auto found = definitions_.find(e->var.get());
        if (found != definitions_.end()) return form(found->second, true);
      }
      return atom_form(e);
    }
    case Op::add:
      return add(form(e->args[0], through_lets), form(e->args[1], through_lets));
    case Op::sub:
      return add(form(e->args[0], through_lets), form(e->args[1], through_lets), -1);
    case Op::neg:
      return scale(form(e->args[0], through_lets), -1);
    case Op::mul: {
      const Form a = form(e->args[0], through_lets);
      const Form b = form(e->args[1], through_lets);
      if (a.is_constant()) return scale(b, a.constant);
      if (b.is_constant()) return scale(a, b.constant);
      return atom_form(to_expr(a, e->type) * to_expr(b, e->type));
    }
    case Op::div:
    case Op::mod: {
      const Form a = form(e->args[0], through_lets);
      const Form b = form(e->args[1], through_lets);
      if (b.is_constant() && b.constant > 0 && range(a).low.value_or(-1) >= 0) {
        return e->op == Op::div ? divide(a, b.constant, e->type) : modulo(a, b.constant, e->type);
      }
      return atom_form(ir::binary(e->op, to_expr(a, e->type), to_expr(b, e->type)));
    }
    case Op::cast:
      if (is_index_cast(e)) return form(e->args[0], through_lets);
      return atom_form(e);
    case Op::bit_xor:
      return atom_form(ir::binary(Op::bit_xor, to_expr(form(e->args[0], through_lets), e->type),
                                  to_expr(form(e->args[1], through_lets), e->type)));
    default:
      return atom_form(e);
  }
}

Expr IndexMath::simplify(const Expr& e) const {
  Expr result = to_expr(form(e), e->type);
  log({Claim::Kind::equal, e, result, 0, {}, {}});
  return result;
}

Expr IndexMath::to_expr(const Form& f, DType type) const {
  Expr result;
  for (const Term& term : f.terms) {
    if (term.coefficient < 0) continue;
    Expr item = ir::cast(type, term.atom) * ir::constant(type, term.coefficient);
    result = result ? result + item : item;
  }
  if (f.constant > 0 || !result) {
    const Expr c = ir::constant(type, std::max<int64_t>(f.constant, 0));
    result = result ? result + c : c;
  }
  for (const Term& term : f.terms) {
    if (term.coefficient > 0) continue;
    result = result - ir::cast(type, term.atom) * ir::constant(type, -term.coefficient);
  }
  if (f.constant < 0) result = result - ir::constant(type, -f.constant);
  return result;
}

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
    if (within(range(split.low), 0, split.unit - 1)) return split;
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
  const Range rest_range = range(rest);
  if (within(rest_range, 0, by - 1)) return quotient;
  if (rest_range.low.value_or(-1) < 0) {
    return atom_form(ir::binary(Op::div, to_expr(f, type), ir::constant(type, by)));
  }
  if (const auto split = split_digit(rest, by))
    return add(quotient, divide(split->high, by / split->unit, type));
  if (rest.terms.size() == 1 && rest.terms[0].coefficient == 1 && rest.constant == 0) {
    const Expr& atom = rest.terms[0].atom;
    if (atom->op == Op::div && ir::is_constant(atom->args[1])) {
      return add(quotient, divide(form(atom->args[0]), by * atom->args[1]->integer, type));
    }
    if (atom->op == Op::mod && ir::is_constant(atom->args[1]) && atom->args[1]->integer % by == 0) {
      const Form inner = divide(form(atom->args[0]), by, type);
      return add(quotient, modulo(inner, atom->args[1]->integer / by, type));
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
  const Range rest_range = range(rest);
  if (within(rest_range, 0, by - 1)) return rest;
  if (rest_range.low.value_or(-1) < 0) {
    return atom_form(ir::binary(Op::mod, to_expr(f, type), ir::constant(type, by)));
  }
  if (const auto split = split_digit(rest, by))
    return add(split->low, modulo(split->high, by / split->unit, type), split->unit);
  if (rest.terms.size() == 1 && rest.terms[0].coefficient == 1 && rest.constant == 0) {
    const Expr& atom = rest.terms[0].atom;
    if (atom->op == Op::mod && ir::is_constant(atom->args[1]) && atom->args[1]->integer % by == 0) {
      return modulo(form(atom->args[0]), by, type);
    }
  }
  return atom_form(ir::binary(Op::mod, to_expr(rest, type), ir::constant(type, by)));
}

}  // namespace tessera::codegen
