#pragma once
// Bounds on the groups of copies that a thread has committed and not awaited, at a point of a
// program.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

struct GroupsInFlight {
  int least = 0, most = 0;

  bool operator==(const GroupsInFlight&) const = default;
};

/// The groups in flight after `body`, given those before it. A commit never leaves more than
/// `limit`.
///
///   groups_after(body of "commit; commit; wait until 1 groups pending", {0, 0}, 8)  // {1, 1}
GroupsInFlight groups_after(const Body& body, GroupsInFlight before, int limit);
/// The same after one statement.
GroupsInFlight groups_after(const Stmt& stmt, GroupsInFlight before, int limit);
/// The groups in flight where a body inside `stmt` begins, in any round.
GroupsInFlight groups_inside(const Stmt& stmt, GroupsInFlight before, int limit);

}  // namespace tessera::codegen
