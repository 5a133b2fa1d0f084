#pragma once
// What is known of an integer without running the program.

#include <functional>
#include <map>

#include "dsl/ir/expr.h"

namespace tessera::codegen {

/// Every value lies in [low, high]. Doubles are exact as far as i32 goes; i64 is taken for too small
/// from 2^62 on.
struct IntRange {
  double low, high;
};

class IntRanges {
 public:
  /// `definition` knows what a variable was bound to, null if it was not bound to an expression.
  /// `threads`: of a block.
  IntRanges(std::function<ir::Expr(const ir::Var&)> definition, int threads)
      : definition_(std::move(definition)), threads_(threads) {}

  /// Of an integer or boolean expression. What may have wrapped can have any value of its type.
  IntRange of(const ir::Expr& e);
  /// Whether the result of a signed add, sub, mul or neg may lie outside its type.
  bool may_wrap(const ir::Expr& e);

 private:
  IntRange exact(const ir::Expr& e);
  IntRange of_variable(const ir::Var& var);

  std::function<ir::Expr(const ir::Var&)> definition_;
  int threads_;
  std::map<const ir::Var*, IntRange> known_;
  int looked_through_ = 0;  // definitions around the one that is looked at
};

}  // namespace tessera::codegen
