#pragma once
// The role that makes the copies of pipelined loops with a producer: passes/split_roles.h.
//
// It runs the loops and conditions around these loops, in each round a fill, and what both depend on: values, and
// elements of tensors that the kernel does not write. All else is left to the role that computes.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/pipelines/copy_groups.h"
#include "codegen/pipelines/replay.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// The bodies around a statement, outer before inner.
using Path = std::vector<const ir::Body*>;

/// A pipelined loop whose copies fill a ring.
struct RingLoop {
  const ir::Stmt* stmt = nullptr;
  Path path = {};                        // to its body
  int ring = -1;                         // in Kernel::rings
  std::vector<Producer> producers = {};  // by position

  const ir::Loop& loop() const { return std::get<ir::Loop>(stmt->node); }
  std::vector<const Producer*> all_producers() const {
    std::vector<const Producer*> all;
    for (const Producer& producer : producers) all.push_back(&producer);
    return all;
  }
};

class LoadRole {
 public:
  /// `from`: the kernel as recorded. New variables are numbered in `kernel`.
  LoadRole(const ir::Kernel& from, ir::Kernel& kernel);

  /// Why the role cannot copy from the tensor: its data are the threads', or come late. Empty if it can.
  std::string obstacle_of_source(const ir::Buffer& tensor) const;

  /// A statement on whose result a copy, a condition or a bound depends, and which the role cannot run.
  struct Obstacle {
    std::string what;
    SourceLoc loc;
  };
  /// The obstacle that keeps the role from running `stmt`, which stands in the last body of `path`.
  std::optional<Obstacle> obstacle(const ir::Stmt& stmt, const Path& path) const;
  /// The same; notes what `stmt` depends on, which the role runs too. No obstacle may be in the way.
  void depend(const ir::Stmt& stmt, const Path& path);

  /// The body of the role. `loops` by id.
  ir::Body body(const ir::Body& from, const std::map<int, RingLoop>& loops);

 private:
  using Statements = std::set<const ir::Stmt*>;

  std::string obstacle_of_read(const ir::Buffer& buffer) const;
  /// Adds the statements that `stmt` depends on to `found`.
  std::optional<Obstacle> look(const ir::Stmt& stmt, const Path& path, Statements& found) const;
  /// True if the role knows all that the assumption is about.
  bool is_known(const ir::Assume& assume) const;
  ir::Body rounds(const RingLoop& loop);

  ir::Kernel& kernel_;
  Replay replay_;
  std::set<int> written_;      // memory_of() the buffers that the kernel writes
  bool meets_blocks_ = false;  // it waits for other blocks
  Statements runs_;            // besides loops, conditions and fills
  std::set<const ir::Var*> known_;
};

/// A turn of the ring of the loop, without a body.
ir::RingTurn turn_of(const RingLoop& loop, bool fills, ir::Kernel& kernel);

/// True if the statement is one of the loops, by id, or holds one.
bool leads_to(const ir::Stmt& stmt, const std::map<int, RingLoop>& loops);

}  // namespace tessera::codegen
