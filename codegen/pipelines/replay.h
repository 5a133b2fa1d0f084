#pragma once
// Statements once more: of a pipelined loop for an iteration that is yet to come, or for another role.

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Copies statements, with values in the place of variables; what they bind gets new variables.
class Replay {
 public:
  /// New variables are numbered in `kernel`, and have `suffix` at the end of their names.
  explicit Replay(ir::Kernel& kernel, std::string suffix = "_ahead")
      : kernel_(kernel), suffix_(std::move(suffix)) {}

  void set(const ir::VarRef& var, ir::Expr value) { values_[var.get()] = std::move(value); }
  ir::Expr operator()(const ir::Expr& e) const;
  /// A value (let, load, whether a tensor was given), an assumption, a copy, a copy of rows (ir::Loop::plan), or
  /// a condition on such statements. Copies take `mode`, if it is given.
  ir::Stmt operator()(ir::Stmt stmt, std::optional<ir::CopyTime> when = {});
  /// A serial loop with an index of its own and no body.
  ir::Loop head(ir::Loop loop);

 private:
  void rename(ir::VarRef& var);
  void replay(std::vector<ir::Expr>& list) const;
  void replay(ir::AccessTerms& terms) const;

  ir::Kernel& kernel_;
  const std::string suffix_;
  std::map<const ir::Var*, ir::Expr> values_;
};

}  // namespace tessera::codegen
