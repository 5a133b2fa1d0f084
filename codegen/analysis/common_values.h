#pragma once
// Values of the tile IR that all threads of a block have in common, or all threads of a cluster.

#include <set>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Statements are noted in order, before what uses their values.
///
///   CommonValues of_cluster(2);
///   of_cluster.note(let);                      // pair = block.x / 2
///   of_cluster.is_common(ir::var(let.var));   // true
class CommonValues {
 public:
  /// `blocks`: 1 for the threads of a block; else of a cluster of that many blocks.
  explicit CommonValues(int blocks) : blocks_(blocks) {}

  void note(const ir::Stmt& stmt);
  /// True only if it is known.
  bool is_common(const ir::Expr& e) const;
  /// True if a loop has the same rounds in all threads, as long as none leaves it early.
  bool has_common_rounds(const ir::Loop& loop) const;

 private:
  const int blocks_;
  std::set<const ir::Var*> known_;
};

}  // namespace tessera::codegen
