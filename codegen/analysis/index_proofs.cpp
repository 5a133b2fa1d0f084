// IndexMath: what normal forms prove. Ranges, divisors, bounds over dims, and the claims made of them.

#include <algorithm>
#include <numeric>

#include "codegen/analysis/form_parts.h"

namespace tessera::codegen {

using ir::Expr;
using ir::Op;

Range IndexMath::atom_range(const Expr& atom) const {
  Range result;
  switch (atom->op) {
    case Op::var: {
      const ir::Var& var = *atom->var;
      if (var.lower) result.low = range(form(var.lower, true)).low;
      // A dim stands for itself in comparisons; how large it may be is the host's check.
      if (var.upper && var.kind != ir::VarKind::dim) {
        const auto high = range(form(var.upper, true)).high;
        if (high) result.high = *high - 1;
      }
      return result;
    }
    case Op::div:
    case Op::mod: {
      if (!ir::is_constant(atom->args[1]) || atom->args[1]->integer <= 0) return result;
      const Range inner = range(form(atom->args[0], true));
      const int64_t by = atom->args[1]->integer;
      if (inner.low.value_or(-1) < 0) return result;
      if (atom->op == Op::div) {
        result.low = *inner.low / by;
        if (inner.high) result.high = *inner.high / by;
      } else {
        result.low = 0;
        result.high = inner.high ? std::min(by - 1, *inner.high) : by - 1;
      }
      return result;
    }
    case Op::mul: {
      const Range a = range(form(atom->args[0], true));
      const Range b = range(form(atom->args[1], true));
      if (a.low.value_or(-1) >= 0 && b.low.value_or(-1) >= 0) {
        result.low = *a.low * *b.low;
        if (a.high && b.high) result.high = *a.high * *b.high;
      }
      return result;
    }
    case Op::bit_xor: {
      const Range a = range(form(atom->args[0], true));
      const Range b = range(form(atom->args[1], true));
      if (a.low.value_or(-1) >= 0 && b.low.value_or(-1) >= 0 && a.high && b.high) {
        int64_t limit = 1;
        while (limit <= std::max(*a.high, *b.high)) limit *= 2;
        result.low = 0;
        result.high = limit - 1;
      }
      return result;
    }
    case Op::min:
    case Op::max: {
      const Range a = range(form(atom->args[0], true));
      const Range b = range(form(atom->args[1], true));
      const bool is_min = atom->op == Op::min;
      if (a.low && b.low) result.low = is_min ? std::min(*a.low, *b.low) : std::max(*a.low, *b.low);
      if (a.high && b.high) {
        result.high = is_min ? std::min(*a.high, *b.high) : std::max(*a.high, *b.high);
      }
      return result;
    }
    case Op::popcount:
      return {0, 64};
    default:
      return result;
  }
}

Range IndexMath::range(const Form& f) const {
  Range result = range_of_terms(f);
  if (facts_.empty() || weighs_facts_) return result;
  // With slack >= 0: f - k * slack <= f for k > 0 and f <= f - k * slack for k < 0. Worth trying is
  // the k that cancels an atom. One fact at a time: the ranges below know of none, so that facts
  // about each other end.
  weighs_facts_ = true;
  for (const Form& slack : facts_) {
    for (const Term& part : slack.terms) {
      for (const Term& term : f.terms) {
        if (compare(term.atom, part.atom) != 0 || term.coefficient % part.coefficient != 0)
          continue;
        const int64_t k = term.coefficient / part.coefficient;
        const Range rest = range_of_terms(add(f, slack, -k));
        if (k > 0 && rest.low) result.low = std::max(result.low.value_or(*rest.low), *rest.low);
        if (k < 0 && rest.high)
          result.high = std::min(result.high.value_or(*rest.high), *rest.high);
      }
    }
  }
  weighs_facts_ = false;
  return result;
}

Range IndexMath::range_of_terms(const Form& f) const {
  Range result{f.constant, f.constant};
  for (const Term& term : f.terms) {
    Range r;
    if (term.atom->op == Op::var && definitions_.contains(term.atom->var.get())) {
      r = range(form(term.atom, true));
    } else {
      r = atom_range(term.atom);
    }
    if (term.coefficient < 0) std::swap(r.low, r.high);
    auto accumulate = [&](std::optional<int64_t>& sum, const std::optional<int64_t>& bound) {
      if (sum && bound) {
        *sum += term.coefficient * *bound;
      } else {
        sum.reset();
      }
    };
    accumulate(result.low, r.low);
    accumulate(result.high, r.high);
  }
  return result;
}

int64_t IndexMath::atom_divisor(const Expr& atom) const {
  if (atom->op == Op::var) {
    const auto found = definitions_.find(atom->var.get());
    if (found != definitions_.end()) return divisor(form(found->second, true));
    return std::max<int64_t>(1, atom->var->multiple_of);
  }
  if (atom->op == Op::mul) return divisor(atom->args[0]) * divisor(atom->args[1]);
  if (atom->op == Op::mod && ir::is_constant(atom->args[1])) {
    return std::gcd(divisor(atom->args[0]), atom->args[1]->integer);
  }
  if (atom->op == Op::div && ir::is_constant(atom->args[1])) {
    const int64_t inner = divisor(atom->args[0]);
    const int64_t by = atom->args[1]->integer;
    return by > 0 && inner % by == 0 ? inner / by : 1;
  }
  return 1;
}

int64_t IndexMath::divisor(const Form& f) const {
  int64_t result = std::abs(f.constant);
  for (const Term& term : f.terms) {
    result = std::gcd(result, std::abs(term.coefficient) * atom_divisor(term.atom));
  }
  return result;
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
  Form inner = form(atom->args[0], true);
  Form varying = inner;
  varying.constant = 0;
  if (range(inner).low.value_or(-1) < 0) inner.constant += by - 1;  // below 0 it is rounded up
  if (divisor(varying) % by == 0) inner.constant -= ((inner.constant % by) + by) % by;
  bound = add(bound, inner, factor / by);
}

/// Values of `atom` are at most this over dims and quotients of dims.
std::optional<Form> IndexMath::atom_bound(const Expr& atom) const {
  const Range r = atom_range(atom);
  if (r.high) return constant_form(*r.high);
  if (atom->op == Op::var) {
    const ir::Var& var = *atom->var;
    // A dim stands for itself: it may cancel against the other side.
    if (var.kind == ir::VarKind::dim || var.kind == ir::VarKind::scalar) return atom_form(atom);
    if (!var.upper) return std::nullopt;
    Form bound = form(var.upper, true);
    bound.constant -= 1;
    return bound;
  }
  if (atom->op == Op::div && ir::is_constant(atom->args[1]) && atom->args[1]->integer > 0) {
    // m <= c * q + d gives m / c <= q + floor(d / c).
    const int64_t by = atom->args[1]->integer;
    const Form inner = form(atom->args[0], true);
    if (inner.terms.size() != 1 || inner.terms[0].coefficient != 1 || inner.constant != 0 ||
        range(inner).low.value_or(-1) < 0) {
      return std::nullopt;
    }
    const std::optional<Form> whole = atom_bound(inner.terms[0].atom);
    if (!whole) return std::nullopt;
    Form bound;
    for (const Term& term : whole->terms) {
      if (term.coefficient % by != 0) return std::nullopt;
      bound.terms.push_back({term.atom, term.coefficient / by});
    }
    const int64_t rest = ((whole->constant % by) + by) % by;
    bound.constant = (whole->constant - rest) / by;
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
        bound.constant += term.coefficient * *low;
      } else if (term.atom->op == Op::var && term.atom->var->kind == ir::VarKind::dim) {
        bound = add(bound, atom_form(term.atom), term.coefficient);
      } else {
        return std::nullopt;
      }
      continue;
    }
    const std::optional<Form> most = atom_bound(term.atom);
    if (!most) return std::nullopt;
    bound.constant += term.coefficient * most->constant;
    for (const Term& part : most->terms) {
      add_at_most(bound, part.atom, term.coefficient * part.coefficient);
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
  const Form left = form(a, true);
  const Form right = form(b, true);
  const auto high = range(add(left, right, -1)).high;
  if (high && *high <= -1) return true;
  if (const auto bound = upper_bound(left)) {
    const auto gap = range(add(*bound, right, -1)).high;
    if (gap && *gap <= -1) return true;
  }
  return proves_quotient_less(a, b);
}

/// Quotients by one divisor c: x / c < y / c if x + c <= y, or if x < y and c divides y.
bool IndexMath::proves_quotient_less(const Expr& a, const Expr& b) const {
  if (is_index_cast(a)) return proves_quotient_less(a->args[0], b);
  if (is_index_cast(b)) return proves_quotient_less(a, b->args[0]);
  const bool quotients = a->op == Op::div && b->op == Op::div && ir::is_constant(a->args[1]) &&
                         ir::is_constant(b->args[1], a->args[1]->integer);
  if (!quotients || a->args[1]->integer <= 0) return false;
  const Expr& x = a->args[0];
  const Expr& y = b->args[0];
  const int64_t by = a->args[1]->integer;
  if (!proves_non_negative(x)) return false;
  const int64_t known = divisor(y);
  if (known != 0 && known % by == 0) return proves_less(x, y);
  return proves_less(x + ir::constant(x->type, by - 1), y);
}

bool IndexMath::proves_non_negative(const Expr& a) const {
  // Looking through lets may take apart what a fact speaks of, and so may the normal form.
  for (const bool through_lets : {true, false}) {
    if (range(form(a, through_lets)).low.value_or(-1) >= 0) return true;
  }
  if ((a->op == Op::div || a->op == Op::mod) && ir::is_constant(a->args[1])) {
    return a->args[1]->integer > 0 && proves_non_negative(a->args[0]);
  }
  return is_index_cast(a) && proves_non_negative(a->args[0]);
}

bool IndexMath::same(const Expr& a, const Expr& b) const {
  const Form difference = add(form(a, true), form(b, true), -1);
  const bool proved = difference.is_constant() && difference.constant == 0;
  if (proved) log({Claim::Kind::equal, a, b, 0, {}, {}});
  return proved;
}

}  // namespace tessera::codegen
