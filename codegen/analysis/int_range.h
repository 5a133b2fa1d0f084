#pragma once
// Static ranges of integer expressions.

#include <functional>
#include <map>

#include "codegen/analysis/interval.h"

namespace tessera::codegen {

class IntRanges {
 public:
  /// `definition` returns what a variable was bound to, null if that is no expression. `threads` is
  /// the block size.
  IntRanges(std::function<ir::Expr(const ir::Var&)> definition, int threads)
      : definition_(std::move(definition)), threads_(threads) {}

  /// The range of an integer or boolean expression. A value that may have wrapped has the full
  /// range of its type.
  Interval of(const ir::Expr& e);
  /// True if the result of a signed add, sub, mul or neg may lie outside its type.
  bool may_wrap(const ir::Expr& e);

 private:
  Interval exact(const ir::Expr& e);
  Interval of_variable(const ir::Var& var);

  std::function<ir::Expr(const ir::Var&)> definition_;
  int threads_;
  std::map<const ir::Var*, Interval> known_;
  int looked_through_ = 0;  // depth of the current chain of definitions
};

}  // namespace tessera::codegen
