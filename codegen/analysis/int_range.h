#pragma once
// What is known of an integer expression of a program without running it.

#include <functional>
#include <map>

#include "codegen/analysis/interval.h"

namespace tessera::codegen {

class IntRanges {
 public:
  /// `definition` knows what a variable was bound to, null if it was not bound to an expression.
  /// `threads`: of a block.
  IntRanges(std::function<ir::Expr(const ir::Var&)> definition, int threads)
      : definition_(std::move(definition)), threads_(threads) {}

  /// Of an integer or boolean expression. What may have wrapped can have any value of its type.
  Interval of(const ir::Expr& e);
  /// Whether the result of a signed add, sub, mul or neg may lie outside its type.
  bool may_wrap(const ir::Expr& e);

 private:
  Interval exact(const ir::Expr& e);
  Interval of_variable(const ir::Var& var);

  std::function<ir::Expr(const ir::Var&)> definition_;
  int threads_;
  std::map<const ir::Var*, Interval> known_;
  int looked_through_ = 0;  // definitions around the one that is looked at
};

}  // namespace tessera::codegen
