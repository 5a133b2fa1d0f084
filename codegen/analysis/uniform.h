#pragma once
// Which values are the same for all threads of a block, or of the whole grid, so that a barrier may
// stand under a condition or in a loop of them. In a role: for all threads of the role.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// Uniform are values computed from parameters, block indices (not over the grid), indices of loops
/// with uniform bounds and other uniform values; loads from global memory that the kernel never writes,
/// at a uniform address; registers whose every store is uniform and stands where all threads come; and,
/// over a block, values that the author vouches for.
///
/// Over a block also loads from shared memory at a uniform address where all threads come:
/// insert_barriers keeps every store to that element on the other side of a barrier. Memory of a
/// manual-sync region and memory that other blocks reach do not count, because there the author alone
/// orders the accesses. And what warp collectives give all lanes, in groups of one warp.
class UniformValues {
 public:
  enum class Over : uint8_t { block, grid };
  /// `known`: values that are the same for the whole block by construction.
  explicit UniformValues(const Program& program, Over over = Over::block,
                         const std::vector<VarRef>& known = {});
  bool operator()(const Expr& e) const;
  /// For messages, why the first value in `e` that differs does: "'n' is set by each thread for itself".
  std::string why_not(const Expr& e) const;

 private:
  /// Why a value differs: computed from others, or for a reason of its own.
  struct Origin {
    Expr value;
    const char* reason = nullptr;  // with a place for the name
    std::string name = {};
  };
  std::string why_not(const Expr& e, int registers) const;
  void visit(const Body& body, bool together);
  void visit(const Stmt& stmt, bool together);
  void visit(const RoleBodies& bodies, bool together);
  /// Registers that a role writes and other statements name as well: each role has its own value.
  void mark_shared_registers(const Program& program);
  void define(const ir::Var& var, bool uniform, const Origin& origin);
  void varies(const ArrayRef& array);
  /// Of a variable that a statement gives each thread by itself.
  static Origin own_result(const Stmt& stmt);
  bool is_one_element(const Access& access) const;
  bool is_uniform(const Load& load, bool together) const;
  Origin origin_of(const Load& load, bool together) const;
  bool differs(const VarRef& var) const;

  const Program& program_;
  Over over_;
  ThreadGroup group_;  // the threads that run what is visited
  std::set<const ir::Var*> values_;
  std::set<const ir::Var*> varying_loops_;    // with bounds that differ between threads
  std::set<const For*> parted_;               // that threads leave in different rounds
  std::set<const Array*> varying_;            // registers
  std::map<const Array*, Expr> stored_;       // what differs in them
  std::set<const Array*> ordered_by_author_;  // shared
  std::map<const ir::Var*, Origin> origins_;  // of values that are not uniform
};

}  // namespace tessera::codegen
