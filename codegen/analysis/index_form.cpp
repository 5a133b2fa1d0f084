#include "codegen/analysis/index_form.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "codegen/analysis/form_parts.h"
#include "dsl/ir/integer.h"

namespace tessera::codegen {
namespace {

using ir::Expr;
using ir::Op;

/// The rank of an expression in the order: by its strongest dependence.
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

/// i32 and i64 count as one type in the order: a computation in either gives the same integer.
/// Conversions do not.
DType type_in_order(const ir::Node& e) {
  const bool converts = e.op == Op::cast || e.op == Op::bitcast;
  return !converts && e.type == DType::i64 ? DType::i32 : e.type;
}

/// a + by * b modulo 2^64.
int64_t multiply_add(int64_t a, int64_t by, int64_t b, bool& wrapped) {
  int64_t scaled = 0;
  int64_t result = 0;
  wrapped |= __builtin_mul_overflow(by, b, &scaled);
  wrapped |= __builtin_add_overflow(a, scaled, &result);
  return result;
}

Form scale(const Form& f, int64_t by) {
  return IndexMath::add({}, f, by);
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

std::optional<int64_t> product(int64_t a, int64_t b) {
  return ir::compute_exactly(Op::mul, DType::i64, a, b);
}

std::optional<int64_t> sum(int64_t a, int64_t b) {
  return ir::compute_exactly(Op::add, DType::i64, a, b);
}

Form IndexMath::add(const Form& a, const Form& b, int64_t by) {
  Form result;
  result.wrapped = a.wrapped || b.wrapped;
  result.constant = multiply_add(a.constant, by, b.constant, result.wrapped);
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
    } else {
      const int64_t coefficient = multiply_add(order > 0 ? 0 : a.terms[i].coefficient, by,
                                               b.terms[j].coefficient, result.wrapped);
      if (coefficient != 0)
        result.terms.push_back({order > 0 ? b.terms[j].atom : a.terms[i].atom, coefficient});
      if (order == 0) ++i;
      ++j;
    }
  }
  return result;
}

void IndexMath::forget_ranges() {
  for (auto& known : known_ranges_) known.clear();
}

void IndexMath::forget_forms() {
  for (auto& known : known_forms_) known.clear();
  forget_ranges();
}

void IndexMath::define(const ir::VarRef& var, const Expr& value) {
  constexpr int kMostDefinitions = 32;  // chained; bounds the recursion
  std::vector<ir::VarRef> named;
  ir::collect_vars(value, named);
  int depth = 0;
  for (const ir::VarRef& other : named) {
    const auto found = definition_depths_.find(other.get());
    if (found != definition_depths_.end()) depth = std::max(depth, found->second + 1);
  }
  if (depth >= kMostDefinitions) return;
  definition_depths_[var.get()] = depth;
  definitions_[var.get()] = value;
  forget_forms();
}

void IndexMath::leave_scope() {
  if (facts_.size() != marks_.back().facts) forget_forms();
  facts_.resize(marks_.back().facts);
  conditions_.resize(marks_.back().conditions);
  marks_.pop_back();
}

void IndexMath::add_fact(const Expr& condition) {
  conditions_.push_back(condition);
  forget_forms();
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
      Form slack = add(value(e->args[1]), value(e->args[0]), -1);
      if (e->op == Op::lt) slack = add(slack, constant_form(-1));
      if (slack.wrapped) continue;
      add_scaled_fact(slack);
      facts_.push_back(std::move(slack));
      forget_ranges();
    }
  }
}

/// n / by + rest >= 0 is n + by * rest >= 0 for n >= 0: if the whole tiles are below their count,
/// they are inside the extent.
void IndexMath::add_scaled_fact(const Form& slack) {
  for (const Term& term : slack.terms) {
    const Expr& atom = term.atom;
    if (term.coefficient != 1 || atom->op != Op::div || !ir::is_constant(atom->args[1])) continue;
    const int64_t by = atom->args[1]->integer;
    if (by <= 0) continue;
    const std::optional<Form> whole = natural(atom->args[0], true);
    if (!whole) continue;
    const Form rest = add(slack, atom_form(atom), -1);
    Form scaled = add(*whole, rest, by);
    if (scaled.wrapped) continue;
    facts_.push_back(std::move(scaled));
    forget_ranges();
  }
}

Form IndexMath::form(const Expr& e, bool through_lets) const {
  if (e->op != Op::div && e->op != Op::mod) return new_form(e, through_lets);
  // Nested digits evaluate their dividends repeatedly, so forms are cached.
  auto& known = known_forms_[(through_lets ? 2 : 0) + (weighs_facts_ ? 1 : 0)];
  const auto found = known.find(e.get());
  if (found != known.end()) return found->second.form;
  Form result = new_form(e, through_lets);
  constexpr size_t kMostKnown = 256;  // about the forms of one statement
  if (known.size() >= kMostKnown) known.clear();
  known.emplace(e.get(), Known{e, result});
  return result;
}

Form IndexMath::value(const Expr& e, bool through_lets) const {
  Form result = form(e, through_lets);
  if (fits(result, e->type)) return result;
  Expr atom = to_expr(result, e->type);
  const Form constant = constant_form(atom->integer);
  if (ir::is_constant(atom) && fits(constant, e->type)) return constant;
  return atom_form(std::move(atom));
}

std::optional<Form> IndexMath::natural(const Expr& e, bool through_lets) const {
  Form result = form(e, through_lets);
  const bool counts_limits = std::exchange(counts_limits_, false);
  const Interval values = range(result);
  counts_limits_ = counts_limits;
  if (!is_natural(values) || !fits(result, e->type)) return std::nullopt;
  return result;
}

Form IndexMath::new_form(const Expr& e, bool through_lets) const {
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
      const Form b = form(e->args[1], through_lets);
      constexpr int64_t kLargestDivisor = int64_t{1} << 31;  // sums of two are far from 64 bits
      if (b.is_constant() && b.constant > 0 && b.constant <= kLargestDivisor) {
        if (const std::optional<Form> a = natural(e->args[0], through_lets)) {
          return e->op == Op::div ? divide(*a, b.constant, e->type)
                                  : modulo(*a, b.constant, e->type);
        }
      }
      const Form a = form(e->args[0], through_lets);
      return atom_form(ir::binary(e->op, to_expr(a, e->type), to_expr(b, e->type)));
    }
    case Op::cast: {
      if (!is_index_cast(e)) return atom_form(e);
      const Expr& narrow = e->args[0];
      Form result = form(narrow, through_lets);
      if (e->type == DType::i32 || fits(result, narrow->type)) return result;
      return atom_form(ir::cast(e->type, to_expr(result, narrow->type)));
    }
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

}  // namespace tessera::codegen
