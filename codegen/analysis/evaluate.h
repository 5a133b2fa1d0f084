#pragma once
// Evaluates index expressions for given values of their Vars: to sample bank conflicts, and in
// tests.

#include <cstdint>
#include <optional>
#include <vector>

#include "dsl/ir/expr.h"

namespace tessera::codegen {

/// Values of Vars by Var::id; absent = unknown.
class Environment {
 public:
  explicit Environment(int num_vars) : values_(static_cast<size_t>(num_vars)) {}
  void set(const ir::Var& var, int64_t value) { values_[static_cast<size_t>(var.id)] = value; }
  void clear(const ir::Var& var) { values_[static_cast<size_t>(var.id)].reset(); }
  std::optional<int64_t> get(const ir::Var& var) const {
    return values_[static_cast<size_t>(var.id)];
  }

 private:
  std::vector<std::optional<int64_t>> values_;
};

/// Returns nothing if a Var has no value, an operation is not an integer one, or a result leaves
/// its dtype.
std::optional<int64_t> evaluate(const ir::Expr& e, const Environment& environment);

}  // namespace tessera::codegen
