#pragma once
// Exact reasoning about indices: expressions as sums of coefficient * atom (mixed-radix normal
// form), with division and modulo by constants resolved where digits do not carry. Simplifies
// coordinates and proves bounds, alignment and equality.
//
// Machine integers wrap. A Form is a sum over the mathematical integers. form() agrees with the
// machine modulo 2^width; value() agrees with it exactly, because it keeps whatever may leave its
// type as one atom. Sums, equality and alignment to powers of two need the former. Order, division
// and widening need the latter.

#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "codegen/analysis/interval.h"
#include "codegen/analysis/proof_log.h"
#include "dsl/ir/expr.h"

namespace tessera::codegen {

/// One summand. The atom is a Var, or a normalised division, modulo, product or bit operation.
struct Term {
  ir::Expr atom;
  int64_t coefficient = 0;
};

/// constant + sum of terms: terms in a fixed order, no zero coefficients, no equal atoms.
struct Form {
  std::vector<Term> terms;
  int64_t constant = 0;
  bool wrapped = false;  // a coefficient overflowed 64 bits: the sum holds only modulo 2^64
  bool is_constant() const { return terms.empty(); }
};

class IndexMath {
 public:
  /// Proofs expand the value of an integer Let, unless too many are chained.
  void define(const ir::VarRef& var, const ir::Expr& value);

  /// Scopes of facts: leaving a scope forgets the facts added in it.
  void enter_scope() { marks_.push_back({facts_.size(), conditions_.size()}); }
  void leave_scope();
  /// Adds a condition that holds in the rest of this scope. Splits comparisons joined by &&, and
  /// negations of comparisons joined by ||.
  void add_fact(const ir::Expr& condition);

  /// The normal form, equal to `e` modulo 2^width of its type. `through_lets` also expands the Vars
  /// of define().
  Form form(const ir::Expr& e, bool through_lets = false) const;
  /// The form of the exact value: form(e) if that cannot leave the type of `e`, else one atom.
  Form value(const ir::Expr& e, bool through_lets = true) const;
  /// An equal expression in normal form.
  ir::Expr simplify(const ir::Expr& e) const;
  ir::Expr to_expr(const Form& f, DType type) const;

  Interval range(const Form& f) const;
  /// The largest known divisor of all values of `f`; 0 if f is the constant 0.
  int64_t divisor(const Form& f) const;
  int64_t divisor(const ir::Expr& e) const { return divisor(value(e)); }
  /// divisor(f), logged as a claim.
  int64_t proved_divisor(const Form& f) const;

  /// Proved: a < b, a >= 0, a == b (for all values of the Vars).
  bool less(const ir::Expr& a, const ir::Expr& b) const;
  bool non_negative(const ir::Expr& a) const;
  bool same(const ir::Expr& a, const ir::Expr& b) const;
  /// Logs for the judge that `guard` is tested at run time because it was not proved here.
  void keep_guard(const ir::Expr& guard) const;

  static Form add(const Form& a, const Form& b, int64_t scale = 1);

 private:
  struct DigitSplit {
    int64_t unit = 1;
    Form high, low;
  };
  Form new_form(const ir::Expr& e, bool through_lets) const;
  /// The form of `e` if it is exact and not negative.
  std::optional<Form> natural(const ir::Expr& e, bool through_lets) const;
  /// Proved: no value of `f` is outside `type`.
  bool fits(const Form& f, DType type) const;
  bool product_fits(const ir::Node& product) const;
  std::optional<DigitSplit> split_digit(const Form& rest, int64_t by) const;
  Form divide(const Form& f, int64_t by, DType type) const;
  Form modulo(const Form& f, int64_t by, DType type) const;
  Interval range_of_terms(const Form& f) const;
  Interval atom_range(const ir::Expr& atom) const;
  Interval new_range(const ir::Expr& atom) const;
  Interval known_range(const ir::Expr& atom) const;
  Interval range_of_operation(const ir::Node& atom) const;
  /// The exclusive upper bound of `var`; nothing if unknown.
  std::optional<Form> upper_of(const ir::Var& var) const;
  bool is_same_on_host(const ir::Expr& e, bool is_sum) const;
  std::optional<Form> atom_bound(const ir::Expr& atom) const;
  void add_at_most(Form& bound, const ir::Expr& atom, int64_t factor) const;
  int64_t atom_divisor(const ir::Expr& atom) const;
  /// An upper bound of `f` in terms of dims only; nothing if an atom has no bound.
  std::optional<Form> upper_bound(const Form& f) const;

  bool proves_less(const ir::Expr& a, const ir::Expr& b) const;
  bool proves_less(const Form& a, const Form& b) const;
  bool proves_quotient_less(const ir::Expr& a, const ir::Expr& b) const;
  bool proves_non_negative(const ir::Expr& a) const;
  void log(Claim claim) const;

  void add_scaled_fact(const Form& slack);
  struct Mark {
    size_t facts, conditions;
  };
  std::map<const ir::Var*, ir::Expr> definitions_;
  std::map<const ir::Var*, int> definition_depths_;  // length of the chain of definitions
  std::vector<Form> facts_;                          // each is >= 0
  std::vector<ir::Expr> conditions_;                 // the conditions that the facts came from
  std::vector<Mark> marks_;
  mutable bool weighs_facts_ = false;
  /// True: ranges include the limits of dims, launches and types. False: these stay symbolic, so
  /// that bounds are found in terms of dims, which cancel.
  mutable bool counts_limits_ = false;

  struct Known {
    ir::Expr e;  // keeps the node alive
    Form form;
  };
  /// Forms cached since the last change of facts or definitions, by through_lets and weighs_facts_.
  mutable std::unordered_map<const ir::Node*, Known> known_forms_[4];
  struct KnownRange {
    ir::Expr atom;  // keeps the node alive
    Interval range;
  };
  /// Ranges of atoms cached since the last change of facts or definitions, by counts_limits_ and weighs_facts_.
  mutable std::unordered_map<const ir::Node*, KnownRange> known_ranges_[4];
  void forget_ranges();
  void forget_forms();
};

}  // namespace tessera::codegen
