// IndexMath: what normal forms prove. Ranges, divisors, bounds over dims, and the claims made of them.

#include <algorithm>
#include <limits>
#include <numeric>

#include "codegen/analysis/form_parts.h"
#include "dsl/ir/extents.h"

namespace tessera::codegen {

using ir::Expr;
using ir::Op;

namespace {

constexpr int64_t kMostThreads = 1024;  // of a block
constexpr int64_t kMostBlocks[] = {(int64_t{1} << 31) - 1, ir::kMostBlocksYZ, ir::kMostBlocksYZ};

void narrow(Range& range, const Range& by) {
  if (by.low) range.low = std::max(range.low.value_or(*by.low), *by.low);
  if (by.high) range.high = std::min(range.high.value_or(*by.high), *by.high);
}

/// a * b of values that are not below 0.
Range natural_product(const Range& a, const Range& b) {
  Range result;
  if (a.low.value_or(-1) < 0 || b.low.value_or(-1) < 0) return result;
  result.low = product(*a.low, *b.low);
  if (a.high && b.high) result.high = product(*a.high, *b.high);
  return result;
}

bool widens(const Expr& e) {
  return is_index_cast(e) && e->type == DType::i64;
}

/// The largest power of two that divides `number`, and so also what wraps modulo 2^64.
int64_t power_of_two_in(int64_t number) {
  return static_cast<int64_t>(static_cast<uint64_t>(number) & (~static_cast<uint64_t>(number) + 1));
}

}  // namespace

bool IndexMath::fits(const Form& f, DType type) const {
  const Range limits = limits_of(type);
  if (f.constant == 0 && f.terms.size() == 1 && f.terms[0].coefficient == 1 &&
      f.terms[0].atom->type == type) {
    return true;
  }
  const bool counts_limits = counts_limits_;
  counts_limits_ = true;
  const Range range = this->range(f);
  counts_limits_ = counts_limits;
  return range.low && range.high && *range.low >= limits.low.value_or(0) &&
         (!limits.high || *range.high <= *limits.high);
}

bool IndexMath::product_fits(const Expr& product) const {
  const bool counts_limits = counts_limits_;
  counts_limits_ = true;
  const Range range =
      natural_product(this->range(value(product->args[0])), this->range(value(product->args[1])));
  counts_limits_ = counts_limits;
  const Range limits = limits_of(product->type);
  return range.high && (!limits.high || *range.high <= *limits.high);
}

std::optional<Form> IndexMath::upper_of(const ir::Var& var) const {
  if (!var.upper) return std::nullopt;
  if (var.kind != ir::VarKind::block) return value(var.upper);
  // The host computes a grid in 64 bits and refuses one that does not fit i32.
  Form upper = form(var.upper, true);
  if (upper.wrapped || !is_same_on_host(var.upper, true)) return std::nullopt;
  return upper;
}

/// True if no step of `e` leaves its type, so that 64 bits give the same. `is_sum`: of the sums and
/// products at the root only the value counts.
bool IndexMath::is_same_on_host(const Expr& e, bool is_sum) const {
  const bool is_ring = e->op == Op::add || e->op == Op::sub || e->op == Op::mul || e->op == Op::neg;
  if (is_ring && !is_sum && !fits(form(e, true), e->type)) return false;
  return std::all_of(e->args.begin(), e->args.end(),
                     [&](const Expr& arg) { return is_same_on_host(arg, is_ring && is_sum); });
}

Range IndexMath::atom_range(const Expr& atom) const {
  Range result = known_range(atom);
  if (!counts_limits_) return result;
  narrow(result, limits_of(atom->type));
  if (atom->op != Op::var) return result;
  if (atom->var->kind == ir::VarKind::thread) narrow(result, {0, kMostThreads - 1});
  if (atom->var->kind == ir::VarKind::block) narrow(result, {0, kMostBlocks[atom->var->axis] - 1});
  return result;
}

Range IndexMath::known_range(const Expr& atom) const {
  Range result;
  switch (atom->op) {
    case Op::var: {
      const ir::Var& var = *atom->var;
      if (var.lower) result.low = range(value(var.lower)).low;
      // A dim stands for itself in comparisons; how large it may be is the host's check.
      if (var.kind == ir::VarKind::dim && !counts_limits_) return result;
      if (const std::optional<Form> upper = upper_of(var)) {
        const auto high = range(*upper).high;
        if (high) result.high = *high - 1;
      }
      return result;
    }
    case Op::div:
    case Op::mod: {
      const Range a = range(value(atom->args[0]));
      const Range b = range(value(atom->args[1]));
      if (b.low.value_or(0) <= 0) return result;
      if (atom->op == Op::div) {
        // Truncated: a large divisor brings a quotient closer to 0.
        if (a.low && *a.low < 0) result.low = *a.low / *b.low;
        if (a.low && *a.low >= 0) result.low = b.high ? *a.low / *b.high : 0;
        if (a.high && *a.high >= 0) result.high = *a.high / *b.low;
        if (a.high && *a.high < 0) result.high = b.high ? *a.high / *b.high : 0;
      } else if (a.low.value_or(-1) >= 0) {
        result.low = 0;
        result.high = a.high;
        if (b.high) result.high = std::min(result.high.value_or(*b.high - 1), *b.high - 1);
      }
      return result;
    }
    case Op::mul: {
      if (!product_fits(atom)) return result;
      return natural_product(range(value(atom->args[0])), range(value(atom->args[1])));
    }
    case Op::bit_xor: {
      const Range a = range(value(atom->args[0]));
      const Range b = range(value(atom->args[1]));
      if (a.low.value_or(-1) >= 0 && b.low.value_or(-1) >= 0 && a.high && b.high) {
        int64_t limit = 1;
        while (limit <= std::max(*a.high, *b.high) && limit < int64_t{1} << 62) limit *= 2;
        result.low = 0;
        result.high = limit - 1;
      }
      return result;
    }
    case Op::min:
    case Op::max: {
      const Range a = range(value(atom->args[0]));
      const Range b = range(value(atom->args[1]));
      const bool is_min = atom->op == Op::min;
      if (a.low && b.low) result.low = is_min ? std::min(*a.low, *b.low) : std::max(*a.low, *b.low);
      if (a.high && b.high) {
        result.high = is_min ? std::min(*a.high, *b.high) : std::max(*a.high, *b.high);
      }
      return result;
    }
    case Op::popcount:
    case Op::clz:
    case Op::ffs:
      return {0, 64};
    default:
      return result;
  }
}

Range IndexMath::range(const Form& f) const {
  if (f.wrapped) return {};
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
        const Form without = add(f, slack, -k);
        if (without.wrapped) continue;
        const Range rest = range_of_terms(without);
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
      r = range(value(term.atom));
    } else {
      r = atom_range(term.atom);
    }
    if (term.coefficient < 0) std::swap(r.low, r.high);
    auto accumulate = [&](std::optional<int64_t>& total, const std::optional<int64_t>& bound) {
      const auto scaled = bound ? product(term.coefficient, *bound) : std::nullopt;
      total = total && scaled ? sum(*total, *scaled) : std::nullopt;
    };
    accumulate(result.low, r.low);
    accumulate(result.high, r.high);
  }
  return result;
}

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
      return product_fits(atom) ? *both : power_of_two_in(*both);
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
  // Below 0 it is rounded up.
  if (range(inner).low.value_or(-1) < 0) inner = add(inner, constant_form(by - 1));
  if (divisor(varying) % by == 0) {
    const int64_t rest = inner.constant % by;
    inner = add(inner, constant_form(-(rest < 0 ? rest + by : rest)));
  }
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

/// Quotients by one divisor c: x / c < y / c if x + c <= y, or if x < y and c divides y.
bool IndexMath::proves_quotient_less(const Expr& a, const Expr& b) const {
  if (widens(a)) return proves_quotient_less(a->args[0], b);
  if (widens(b)) return proves_quotient_less(a, b->args[0]);
  const bool quotients = a->op == Op::div && b->op == Op::div && ir::is_constant(a->args[1]) &&
                         ir::is_constant(b->args[1], a->args[1]->integer);
  if (!quotients || a->args[1]->integer <= 0) return false;
  const Form x = value(a->args[0]);
  const Form y = value(b->args[0]);
  const int64_t by = a->args[1]->integer;
  if (!proves_non_negative(a->args[0])) return false;
  const int64_t known = divisor(y);
  if (known != 0 && known % by == 0)
    return proves_less(x, y) || proves_quotient_less(a->args[0], b->args[0]);
  return proves_less(add(x, constant_form(by - 1)), y);
}

bool IndexMath::proves_non_negative(const Expr& a) const {
  // Looking through lets may take apart what a fact speaks of, and so may the normal form.
  for (const bool through_lets : {true, false}) {
    if (range(value(a, through_lets)).low.value_or(-1) >= 0) return true;
  }
  if ((a->op == Op::div || a->op == Op::mod) && ir::is_constant(a->args[1])) {
    return a->args[1]->integer > 0 && proves_non_negative(a->args[0]);
  }
  return widens(a) && proves_non_negative(a->args[0]);
}

bool IndexMath::same(const Expr& a, const Expr& b) const {
  // Of one type, values that agree modulo 2^width are equal.
  const bool is_one_type = a->type == b->type;
  const Form difference =
      is_one_type ? add(form(a, true), form(b, true), -1) : add(value(a), value(b), -1);
  const bool proved = difference.is_constant() && difference.constant == 0;
  if (proved) log({Claim::Kind::equal, a, b, 0, {}, {}});
  return proved;
}

}  // namespace tessera::codegen
