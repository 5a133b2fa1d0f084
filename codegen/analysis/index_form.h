#pragma once
// Exact reasoning about indices: expressions as sums of coefficient * atom (mixed-radix normal
// form), with division and modulo by constants resolved where digits do not carry. Simplifies
// coordinates and proves bounds, alignment and equality. Values are mathematical integers: the host
// keeps every extent far enough below 2^31.

#include <map>
#include <optional>
#include <vector>

#include "codegen/analysis/proof_log.h"
#include "dsl/ir/expr.h"

namespace tessera::codegen {

/// One summand. The atom is a Var, or a division, modulo, product or bit operation in normal form.
struct Term {
  ir::Expr atom;
  int64_t coefficient = 0;
};

/// constant + sum of terms, terms in a fixed order, no zero coefficients, no two equal atoms.
struct Form {
  std::vector<Term> terms;
  int64_t constant = 0;
  bool is_constant() const { return terms.empty(); }
};

struct Range {
  std::optional<int64_t> low, high;  // inclusive; nothing = unknown
};

class IndexMath {
 public:
  /// Proofs look through the value of an integer Let.
  void define(const ir::VarRef& var, const ir::Expr& value) { definitions_[var.get()] = value; }

  /// Facts live in scopes: leaving one forgets what was learnt since it was entered.
  void enter_scope() { marks_.push_back({facts_.size(), conditions_.size()}); }
  void leave_scope() {
    facts_.resize(marks_.back().facts);
    conditions_.resize(marks_.back().conditions);
    marks_.pop_back();
  }
  /// A condition known to hold in the rest of this scope: comparisons joined by && are taken apart,
  /// and so are the negations of comparisons and of those joined by ||.
  void add_fact(const ir::Expr& condition);

  /// The normal form; `through_lets` also expands the Vars of define().
  Form form(const ir::Expr& e, bool through_lets = false) const;
  /// An equal expression in normal form.
  ir::Expr simplify(const ir::Expr& e) const;
  ir::Expr to_expr(const Form& f, DType type) const;

  Range range(const Form& f) const;
  /// The largest number known to divide every value of `f`; 0 if f is the constant 0.
  int64_t divisor(const Form& f) const;
  int64_t divisor(const ir::Expr& e) const { return divisor(form(e, true)); }
  /// divisor(f) as a claim.
  int64_t proved_divisor(const Form& f) const;

  /// Proved: a < b, a >= 0, a == b (for all values of the Vars).
  bool less(const ir::Expr& a, const ir::Expr& b) const;
  bool non_negative(const ir::Expr& a) const;
  bool same(const ir::Expr& a, const ir::Expr& b) const;
  /// For the judge: `guard` is tested at run time because it could not be proved here.
  void keep_guard(const ir::Expr& guard) const;

  static Form add(const Form& a, const Form& b, int64_t scale = 1);

 private:
  struct DigitSplit {
    int64_t unit = 1;
    Form high, low;
  };
  std::optional<DigitSplit> split_digit(const Form& rest, int64_t by) const;
  Form divide(const Form& f, int64_t by, DType type) const;
  Form modulo(const Form& f, int64_t by, DType type) const;
  Range range_of_terms(const Form& f) const;
  Range atom_range(const ir::Expr& atom) const;
  std::optional<Form> atom_bound(const ir::Expr& atom) const;
  void add_at_most(Form& bound, const ir::Expr& atom, int64_t factor) const;
  int64_t atom_divisor(const ir::Expr& atom) const;
  /// An upper bound of `f` over dims alone; nothing if an atom has no bound.
  std::optional<Form> upper_bound(const Form& f) const;

  bool proves_less(const ir::Expr& a, const ir::Expr& b) const;
  bool proves_quotient_less(const ir::Expr& a, const ir::Expr& b) const;
  bool proves_non_negative(const ir::Expr& a) const;
  void log(Claim claim) const;

  void add_scaled_fact(const Form& slack);
  struct Mark {
    size_t facts, conditions;
  };
  std::map<const ir::Var*, ir::Expr> definitions_;
  std::vector<Form> facts_;           // each is >= 0
  std::vector<ir::Expr> conditions_;  // where the facts come from
  std::vector<Mark> marks_;
  mutable bool weighs_facts_ = false;
};

}  // namespace tessera::codegen
