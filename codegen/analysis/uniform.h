#pragma once
// Values that are the same for all threads of a block, or of the grid, so that a barrier may stand
// under their condition or in their loop. Inside a role: for all threads of the role.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Uniform values: computed from parameters, block indices (not over the grid), indices of loops with
/// uniform bounds, and other uniform values; loaded from global memory that the kernel never writes, at
/// a uniform address; registers whose every store is uniform and executed by all threads; and, over a
/// block, values that the author vouches for.
///
/// Over a block also: loads from shared memory at a uniform address that all threads execute, because
/// insert_barriers separates them from every store to that element by a barrier. Excluded is memory
/// of a manual-sync region and memory that other blocks access: only the author orders these. Also
/// the results of warp collectives that all lanes share, in groups of one warp.
class UniformValues {
 public:
  enum class Over : uint8_t { block, grid };
  /// `known`: values that are uniform for the block by construction.
  explicit UniformValues(const Program& program, Over over = Over::block,
                         const std::vector<VarRef>& known = {});
  bool operator()(const Expr& e) const;
  /// Explains for a message why the first varying value in `e` varies: "'n' is set by each thread for
  /// itself".
  std::string why_not(const Expr& e) const;

 private:
  /// Why a value varies: computed from varying values, or for its own reason.
  struct Origin {
    Expr value;
    const char* reason = nullptr;  // with a placeholder for the name
    std::string name = {};
  };
  std::string why_not(const Expr& e, int registers) const;
  void visit(const Body& body, bool together);
  void visit(const Stmt& stmt, bool together);
  void visit(const RoleBodies& bodies, bool together);
  /// Registers written in a role and named outside it: each role has its own value.
  void mark_shared_registers(const Program& program);
  void define(const ir::Var& var, bool uniform, const Origin& origin);
  void varies(const ArrayRef& array);
  /// The origin of a variable whose statement gives each thread its own value.
  static Origin own_result(const Stmt& stmt);
  bool is_one_element(const Access& access) const;
  bool is_uniform(const Load& load, bool together) const;
  Origin origin_of(const Load& load, bool together) const;
  bool differs(const VarRef& var) const;

  const Program& program_;
  Over over_;
  ThreadGroup group_;  // the threads that execute what is visited
  std::set<const ir::Var*> values_;
  std::set<const ir::Var*> varying_loops_;    // with bounds that differ between threads
  std::set<const For*> parted_;               // threads leave them in different rounds
  std::set<const Array*> varying_;            // registers
  std::map<const Array*, Expr> stored_;       // what differs in them
  std::set<const Array*> ordered_by_author_;  // shared
  std::map<const ir::Var*, Origin> origins_;  // of values that are not uniform
};

}  // namespace tessera::codegen
