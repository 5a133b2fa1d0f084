#pragma once
// Statements of a pipelined loop once more, for an iteration that is yet to come.

#include <map>
#include <optional>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Copies statements, with values in the place of variables; what they bind gets new variables.
class Replay {
 public:
  /// New variables are numbered in `kernel`.
  explicit Replay(ir::Kernel& kernel) : kernel_(kernel) {}

  void set(const ir::VarRef& var, ir::Expr value) { values_[var.get()] = std::move(value); }
  ir::Expr operator()(const ir::Expr& e) const;
  /// A value (let, load, whether a tensor was given), a copy, a copy of rows (ir::Loop::gathers), or a condition
  /// on such statements. Copies take `mode`, if it is given.
  ir::Stmt operator()(ir::Stmt stmt, std::optional<ir::CopyMode> mode = {});

 private:
  void rename(ir::VarRef& var);
  void replay(std::vector<ir::Expr>& list) const;
  void replay(ir::AccessTerms& terms) const;

  ir::Kernel& kernel_;
  std::map<const ir::Var*, ir::Expr> values_;
};

}  // namespace tessera::codegen
