#pragma once
// Evaluates index expressions for all threads of a block at once, for footprints and bank conflicts.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "dsl/ir/expr.h"

namespace tessera::codegen {

/// One value per thread, or one value for all.
struct ThreadColumn {
  std::vector<int64_t> lanes;  // empty = `value` for all
  int64_t value = 0;
  int64_t at(size_t thread) const { return lanes.empty() ? value : lanes[thread]; }
};

class ThreadValues {
 public:
  ThreadValues(ir::VarRef thread, int threads) : thread_(std::move(thread)), threads_(threads) {}

  /// Binds a Var to the value of its Let, which is expanded on use unless too many are chained.
  void define(const ir::Var& var, const ir::Expr& value);
  void forget(int id);
  /// The definition of a Var; null if unknown.
  const ir::Expr* definition(const ir::Var& var) const;

  void bind(const ir::Var& var, int64_t value);
  /// Binds a Var of which only the remainder modulo `period` (and its divisors) is known.
  void bind_phase(const ir::Var& var, int64_t phase, int64_t period);
  void unbind(const ir::Var& var);

  /// Returns nothing if a Var has no value, an operation is not an integer one, or a result leaves
  /// the range of its dtype.
  std::optional<ThreadColumn> evaluate(const ir::Expr& e) const;

 private:
  struct Binding {
    int64_t value, period;  // period 0: the value itself is known
  };
  std::optional<ThreadColumn> evaluate_modulo(const ir::Expr& e, int64_t modulus) const;
  std::optional<ThreadColumn> remainder(const ir::Expr& dividend, int64_t divisor) const;

  ir::VarRef thread_;
  int threads_;
  std::map<int, Binding> bound_;
  std::map<int, ir::Expr> definitions_;
  std::map<int, int> depths_;  // of definitions: how many are looked through in a row
  mutable std::map<int, std::optional<ThreadColumn>>
      known_;  // of definitions, under these bindings
};

/// The period in which `e` repeats if `var` is used only inside divisions with remainder: the least
/// common multiple of their divisors.
int64_t period_of(const ir::Expr& e, const ir::Var& var);

}  // namespace tessera::codegen
