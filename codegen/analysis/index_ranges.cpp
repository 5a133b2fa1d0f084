// IndexMath: ranges of normal forms and atoms.

#include <algorithm>
#include <utility>

#include "codegen/analysis/form_parts.h"
#include "dsl/ir/extents.h"

namespace tessera::codegen {

using ir::Expr;
using ir::Op;

namespace {

constexpr int64_t kMostBlockThreads = 1024;  // of a block
constexpr int64_t kMostBlocks[] = {(int64_t{1} << 31) - 1, ir::kMostBlocksYZ, ir::kMostBlocksYZ};

}  // namespace

bool IndexMath::fits(const Form& f, DType type) const {
  if (f.constant == 0 && f.terms.size() == 1 && f.terms[0].coefficient == 1 &&
      f.terms[0].atom->type == type) {
    return true;
  }
  const bool counts_limits = std::exchange(counts_limits_, true);
  const Interval values = range(f);
  counts_limits_ = counts_limits;
  return codegen::fits(values, type);
}

/// True if the product of non-negative numbers fits in its type.
bool IndexMath::product_fits(const ir::Node& product) const {
  const bool counts_limits = std::exchange(counts_limits_, true);
  const Interval a = range(value(product.args[0])), b = range(value(product.args[1]));
  counts_limits_ = counts_limits;
  return is_natural(a) && is_natural(b) && codegen::fits(interval_of(Op::mul, a, b), product.type);
}

std::optional<Form> IndexMath::upper_of(const ir::Var& var) const {
  if (!var.upper) return std::nullopt;
  if (var.kind != ir::VarKind::block) return value(var.upper);
  // The host computes a grid in 64 bits and refuses one that does not fit i32.
  Form upper = form(var.upper, true);
  if (upper.wrapped || !is_same_on_host(var.upper, true)) return std::nullopt;
  return upper;
}

/// True if no step of `e` leaves its type, so that 64-bit arithmetic gives the same value.
/// `is_sum`: only the final value of the sums and products at the root matters.
bool IndexMath::is_same_on_host(const Expr& e, bool is_sum) const {
  const bool is_ring = e->op == Op::add || e->op == Op::sub || e->op == Op::mul || e->op == Op::neg;
  if (is_ring && !is_sum && !fits(form(e, true), e->type)) return false;
  return std::all_of(e->args.begin(), e->args.end(),
                     [&](const Expr& arg) { return is_same_on_host(arg, is_ring && is_sum); });
}

Interval IndexMath::atom_range(const Expr& atom) const {
  // An atom's range asks for those of its arguments, theirs for those of their own: without the cache the time doubles with
  // each level.
  auto& known = known_ranges_[(counts_limits_ ? 2 : 0) + (weighs_facts_ ? 1 : 0)];
  if (const auto found = known.find(atom.get()); found != known.end()) return found->second.range;
  const Interval result = new_range(atom);
  constexpr size_t kMostKnown = 1024;
  if (known.size() >= kMostKnown) known.clear();
  known.emplace(atom.get(), KnownRange{atom, result});
  return result;
}

Interval IndexMath::new_range(const Expr& atom) const {
  const Interval known = known_range(atom);
  if (!counts_limits_) return known;
  const Interval limited = intersect(known, limits_of(atom->type));
  if (atom->op != Op::var) return limited;
  if (atom->var->kind == ir::VarKind::thread) return intersect(limited, {0, kMostBlockThreads - 1});
  if (atom->var->kind == ir::VarKind::block)
    return intersect(limited, {0, kMostBlocks[atom->var->axis] - 1});
  return limited;
}

Interval IndexMath::known_range(const Expr& atom) const {
  if (atom->op != Op::var) return range_of_operation(*atom);
  const ir::Var& var = *atom->var;
  Interval result;
  if (var.lower) result.low = range(value(var.lower)).low;
  // A dim stays symbolic in comparisons; the host checks its size.
  if (var.kind == ir::VarKind::dim && !counts_limits_) return result;
  if (const std::optional<Form> upper = upper_of(var)) {
    const auto high = range(*upper).high;
    if (high) result.high = *high - 1;
  }
  return result;
}

/// The range of an atom that is no variable. Sums become atoms where they may leave their type.
Interval IndexMath::range_of_operation(const ir::Node& atom) const {
  const auto argument = [&](size_t i) { return range(value(atom.args[i])); };
  switch (atom.op) {
    case Op::mul:
      if (!product_fits(atom)) return {};
      break;
    case Op::div:
    case Op::mod:
    case Op::bit_xor:
    case Op::min:
    case Op::max:
      break;
    case Op::popcount:
    case Op::clz:
    case Op::ffs:
      return interval_of(atom.op, {});
    default:
      return {};
  }
  return interval_of(atom.op, argument(0), argument(1));
}

Interval IndexMath::range(const Form& f) const {
  if (f.wrapped) return {};
  Interval result = range_of_terms(f);
  if (facts_.empty() || weighs_facts_) return result;
  // With slack >= 0: f - k * slack <= f for k > 0 and f <= f - k * slack for k < 0. Useful are the
  // k that cancel an atom. One fact at a time: the ranges below use no facts, so that facts about
  // each other terminate.
  weighs_facts_ = true;
  for (const Form& slack : facts_) {
    for (const Term& part : slack.terms) {
      for (const Term& term : f.terms) {
        if (compare(term.atom, part.atom) != 0 || term.coefficient % part.coefficient != 0)
          continue;
        const int64_t k = term.coefficient / part.coefficient;
        const Form without = add(f, slack, -k);
        if (without.wrapped) continue;
        const Interval rest = range_of_terms(without);
        result = intersect(result, k > 0 ? Interval{rest.low, {}} : Interval{{}, rest.high});
      }
    }
  }
  weighs_facts_ = false;
  return result;
}

Interval IndexMath::range_of_terms(const Form& f) const {
  Interval result{f.constant, f.constant};
  for (const Term& term : f.terms) {
    Interval r;
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

}  // namespace tessera::codegen
