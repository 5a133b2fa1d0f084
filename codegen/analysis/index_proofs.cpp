// IndexMath: proofs from normal forms. Divisors, bounds over dims, and the claims made from them.

#include <algorithm>
#include <limits>
#include <numeric>

#include "codegen/analysis/form_parts.h"

namespace tessera::codegen {

using ir::Expr;
using ir::Op;

namespace {

bool widens(const Expr& e) {
  return is_index_cast(e) && e->type == DType::i64;
}

/// The largest power of two that divides `number`; it also divides what wraps modulo 2^64.
int64_t power_of_two_in(int64_t number) {
  return static_cast<int64_t>(static_cast<uint64_t>(number) & (~static_cast<uint64_t>(number) + 1));
}

}  // namespace

int64_t IndexMath::atom_divisor(const Expr& atom) const {
  switch (atom->op) {
    case Op::var: {
      const auto found = definitions_.find(atom->var.get());
      if (found != definitions_.end()) return divisor(found->second);
      return std::max<int64_t>(1, atom->var->multiple_of);
    }
    case Op::mul: {
      const auto both = product(divisor(atom->args[0]), divisor(atom->args[1]));
      if (!both) return 1;
      return product_fits(*atom) ? *both : power_of_two_in(*both);
    }
    case Op::add:
    case Op::sub:
    case Op::neg:  // may have left its type
      return power_of_two_in(divisor(form(atom, true)));
    case Op::cast:
      return is_index_cast(atom) ? power_of_two_in(divisor(atom->args[0])) : 1;
    case Op::mod:
      if (!ir::is_constant(atom->args[1])) return 1;
      return std::gcd(divisor(atom->args[0]), atom->args[1]->integer);
    case Op::div: {
      if (!ir::is_constant(atom->args[1])) return 1;
      const int64_t inner = divisor(atom->args[0]);
      const int64_t by = atom->args[1]->integer;
      return by > 0 && inner % by == 0 ? inner / by : 1;
    }
    default:
      return 1;
  }
}

int64_t IndexMath::divisor(const Form& f) const {
  const auto magnitude = [](int64_t number) {
    constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
    return number == kLowest ? int64_t{1} << 62 : std::abs(number);
  };
  int64_t result = magnitude(f.constant);
  for (const Term& term : f.terms) {
    const int64_t factor = magnitude(term.coefficient);
    result = std::gcd(result, product(factor, atom_divisor(term.atom)).value_or(factor));
  }
  return f.wrapped ? power_of_two_in(result) : result;
}

/// bound += factor * atom; floor(m / c) with c | factor loses its rounding.
void IndexMath::add_at_most(Form& bound, const Expr& atom, int64_t factor) const {
  const bool quotient =
      atom->op == Op::div && ir::is_constant(atom->args[1]) && atom->args[1]->integer > 0;
  if (!quotient || factor % atom->args[1]->integer != 0 || factor <= 0) {
    bound = add(bound, atom_form(atom), factor);
    return;
  }
  const int64_t by = atom->args[1]->integer;
  Form inner = value(atom->args[0]);
  Form varying = inner;
  varying.constant = 0;
  // A negative quotient is rounded up.
  if (range(inner).low.value_or(-1) < 0) inner = add(inner, constant_form(by - 1));
  if (divisor(varying) % by == 0) {
    const int64_t rest = inner.constant % by;
    inner = add(inner, constant_form(-(rest < 0 ? rest + by : rest)));
  }
  bound = add(bound, inner, factor / by);
}

/// An upper bound of `atom` over dims and quotients of dims.
std::optional<Form> IndexMath::atom_bound(const Expr& atom) const {
  const Interval r = atom_range(atom);
  if (r.high) return constant_form(*r.high);
  if (atom->op == Op::var) {
    const ir::Var& var = *atom->var;
    // A dim stays symbolic: it may cancel against the other side.
    if (var.kind == ir::VarKind::dim || var.kind == ir::VarKind::scalar) return atom_form(atom);
    const std::optional<Form> upper = upper_of(var);
    if (!upper) return std::nullopt;
    return add(*upper, constant_form(-1));
  }
  if (atom->op == Op::mod) {
    const Form by = value(atom->args[1]);
    if (range(by).low.value_or(0) <= 0) return std::nullopt;
    return add(by, constant_form(-1));
  }
  if (atom->op == Op::div && ir::is_constant(atom->args[1]) && atom->args[1]->integer > 0) {
    // m <= c * q + d gives m / c <= q + floor(d / c).
    const int64_t by = atom->args[1]->integer;
    const Form inner = value(atom->args[0]);
    if (inner.terms.size() != 1 || inner.terms[0].coefficient != 1 || inner.constant != 0 ||
        range(inner).low.value_or(-1) < 0) {
      return std::nullopt;
    }
    const std::optional<Form> whole = atom_bound(inner.terms[0].atom);
    if (!whole || whole->wrapped) return std::nullopt;
    Form bound;
    for (const Term& term : whole->terms) {
      if (term.coefficient % by != 0) return std::nullopt;
      bound.terms.push_back({term.atom, term.coefficient / by});
    }
    const int64_t rest = whole->constant % by;
    bound.constant = whole->constant / by - (rest < 0 ? 1 : 0);
    return bound;
  }
  return std::nullopt;
}

std::optional<Form> IndexMath::upper_bound(const Form& f) const {
  Form bound = constant_form(f.constant);
  for (const Term& term : f.terms) {
    if (term.coefficient < 0) {
      const auto low = atom_range(term.atom).low;
      if (low) {
        bound = add(bound, constant_form(*low), term.coefficient);
      } else if (term.atom->op == Op::var && term.atom->var->kind == ir::VarKind::dim) {
        bound = add(bound, atom_form(term.atom), term.coefficient);
      } else {
        return std::nullopt;
      }
      continue;
    }
    const std::optional<Form> most = atom_bound(term.atom);
    if (!most) return std::nullopt;
    bound = add(bound, constant_form(most->constant), term.coefficient);
    bound.wrapped |= most->wrapped;
    for (const Term& part : most->terms) {
      const auto factor = product(term.coefficient, part.coefficient);
      if (!factor) return std::nullopt;
      add_at_most(bound, part.atom, *factor);
    }
  }
  return bound;
}

int64_t IndexMath::proved_divisor(const Form& f) const {
  const int64_t result = divisor(f);
  log({Claim::Kind::divisible, to_expr(f, DType::i64), {}, result, {}, {}});
  return result;
}

bool IndexMath::less(const Expr& a, const Expr& b) const {
  const bool proved = proves_less(a, b);
  if (proved) log({Claim::Kind::less, a, b, 0, {}, {}});
  return proved;
}

bool IndexMath::non_negative(const Expr& a) const {
  const bool proved = proves_non_negative(a);
  if (proved) log({Claim::Kind::non_negative, a, {}, 0, {}, {}});
  return proved;
}

void IndexMath::keep_guard(const Expr& guard) const {
  log({Claim::Kind::kept_guard, guard, {}, 0, {}, {}});
}

void IndexMath::log(Claim claim) const {
  ProofLog* log = ProofLog::active();
  if (!log) return;
  claim.known = conditions_;
  claim.lets.assign(definitions_.begin(), definitions_.end());
  log->add(std::move(claim));
}

bool IndexMath::proves_less(const Expr& a, const Expr& b) const {
  return proves_less(value(a), value(b)) || proves_quotient_less(a, b);
}

bool IndexMath::proves_less(const Form& a, const Form& b) const {
  const auto high = range(add(a, b, -1)).high;
  if (high && *high <= -1) return true;
  const std::optional<Form> bound = upper_bound(a);
  if (!bound) return false;
  const auto gap = range(add(*bound, b, -1)).high;
  return gap && *gap <= -1;
}

/// Compares with a quotient by c: x < y / c if c * x + c <= y. Quotients by one c: x / c < y / c if x + c <= y,
/// or if x < y and c divides y.
bool IndexMath::proves_quotient_less(const Expr& a, const Expr& b) const {
  if (widens(a)) return proves_quotient_less(a->args[0], b);
  if (widens(b)) return proves_quotient_less(a, b->args[0]);
  if (b->op != Op::div || !ir::is_constant(b->args[1]) || b->args[1]->integer <= 0) return false;
  const Form y = value(b->args[0]);
  const int64_t by = b->args[1]->integer;
  if (a->op != Op::div || !ir::is_constant(a->args[1], by)) {
    return proves_less(add(constant_form(by - 1), value(a), by), y);
  }
  const Form x = value(a->args[0]);
  if (!proves_non_negative(a->args[0])) return false;
  const int64_t known = divisor(y);
  if (known != 0 && known % by == 0)
    return proves_less(x, y) || proves_quotient_less(a->args[0], b->args[0]);
  return proves_less(add(x, constant_form(by - 1)), y);
}

bool IndexMath::proves_non_negative(const Expr& a) const {
  // Expanding lets, or the normal form itself, may break up the expression of a fact.
  for (const bool through_lets : {true, false}) {
    if (range(value(a, through_lets)).low.value_or(-1) >= 0) return true;
  }
  if ((a->op == Op::div || a->op == Op::mod) && ir::is_constant(a->args[1])) {
    return a->args[1]->integer > 0 && proves_non_negative(a->args[0]);
  }
  return widens(a) && proves_non_negative(a->args[0]);
}

bool IndexMath::same(const Expr& a, const Expr& b) const {
  // Values of one type that agree modulo 2^width are equal.
  const bool is_one_type = a->type == b->type;
  const Form difference =
      is_one_type ? add(form(a, true), form(b, true), -1) : add(value(a), value(b), -1);
  const bool proved = difference.is_constant() && difference.constant == 0;
  if (proved) log({Claim::Kind::equal, a, b, 0, {}, {}});
  return proved;
}

}  // namespace tessera::codegen
