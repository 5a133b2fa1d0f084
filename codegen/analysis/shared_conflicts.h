#pragma once
// Conflicts between shared-memory accesses: the accesses of a statement under the loops and
// conditions around it, and their conflicts with pending ones.

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "codegen/analysis/footprint.h"
#include "codegen/analysis/pending_accesses.h"
#include "codegen/analysis/uniform.h"

namespace tessera::codegen {

using Accesses = std::vector<FootprintRef>;

/// Two accesses that need an order; `order` is Group::thread if there are none.
struct Conflict {
  Group order = Group::thread;
  FootprintRef before, after;
};

class SharedConflicts {
 public:
  /// The threads are those of the block until enter_role().
  explicit SharedConflicts(const Program& program)
      : footprints_(program), block_(program.block()), group_(block_) {}

  // ---- position of the current statement
  void enter_loop(const Rounds& rounds) { loops_.push_back(rounds); }
  void leave_loop() { loops_.pop_back(); }
  const std::vector<Rounds>& loops() const { return loops_; }
  void enter_then(const If& branch) { predicates_.push_back(branch.condition); }
  void enter_otherwise(const If& branch) { predicates_.back() = negation(branch); }
  void leave_branch() { predicates_.pop_back(); }
  void enter_role(const ThreadGroup& group) { group_ = group; }
  void leave_role() { group_ = block_; }
  /// The threads that execute the statement.
  const ThreadGroup& group() const { return group_; }

  // ---- questions
  /// All shared accesses of a statement or body, nested ones included, with the predicates around
  /// them.
  Accesses accesses_of(const Stmt& stmt);
  Accesses accesses_of(const Body& body);
  Group order_between(const FootprintRef& before, const FootprintRef& after);
  /// The strongest missing order between pending accesses and the next ones.
  Conflict conflict_with(const std::vector<PendingAccess>& pending, const Accesses& next);
  /// True if a value, or the bounds of a loop, are uniform in each warp of the group.
  bool is_same_in_warps(const Expr& e, const UniformValues& uniform) const;
  bool is_same_in_warps(const For& loop, const UniformValues& uniform) const;

 private:
  void collect(const Stmt& stmt, Accesses& out);
  void collect(const Body& body, Accesses& out);
  /// Cached: one object per condition, so that footprints under it are found again.
  Expr negation(const If& branch);

  Footprints footprints_;
  const ThreadGroup block_;
  ThreadGroup group_;
  std::vector<Rounds> loops_;  // around the current statement
  std::vector<Expr> predicates_;
  std::map<const ir::Node*, Expr> negations_;
  std::unordered_map<uint64_t, Group> orders_;  // by the numbers of both footprints
};

/// The period after which the shared accesses of a loop's body, and their conditions, repeat; 1 if it
/// exceeds `most`.
int64_t period_of_accesses(const For& loop, int64_t most);
/// The number of groups that a body leaves in flight, at most `most`.
int64_t max_in_flight(const Body& body, int64_t most);

}  // namespace tessera::codegen
