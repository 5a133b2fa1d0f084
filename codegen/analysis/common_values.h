#pragma once
// Values of the tile IR that all threads of a block have in common, or all threads of a cluster. In a role: of the role.
// k.uniform vouches for the threads of a block alone.

#include <set>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Statements are noted in order, before what uses their values. A variable (k.var) has a common value if all threads
/// store common values to it, equally often.
///
///   CommonValues of_cluster(kernel, 2);
///   of_cluster.note(let);                      // pair = block.x / 2
///   of_cluster.is_common(ir::var(let.var));   // true
class CommonValues {
 public:
  /// `blocks`: 1 for the threads of a block; else of a cluster of that many blocks.
  CommonValues(const ir::Kernel& kernel, int blocks);

  void note(const ir::Stmt& stmt);
  /// True only if it is known.
  bool is_common(const ir::Expr& e) const;
  /// True if a loop has the same rounds in all threads, as long as none leaves it early.
  bool has_common_rounds(const ir::Loop& loop) const;

 private:
  void find_varying(const ir::Body& body, bool together);

  const int blocks_;
  std::set<const ir::Var*> known_;
  std::set<int> varying_;  // variables, by id of the buffer
  std::set<int> parted_;   // loops that threads may leave in different rounds, by loop_id
};

}  // namespace tessera::codegen
