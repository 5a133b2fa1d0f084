#pragma once
// One pipelined loop: its copies ahead, and the loop that is left. See passes/pipeline_loops.h.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/pipelines/copy_groups.h"
#include "codegen/pipelines/crossing.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Throws ASYNC_IN_PIPELINE if the pipelined loop at `loc` holds an asynchronous copy, a wait or a pipelined loop.
void require_no_waits(const ir::Kernel& kernel, const ir::Loop& loop, SourceLoc loc);

/// A pipelined loop as a serial one of the same rounds.
ir::Loop as_serial(ir::Loop loop);

class LoopPipeline {
 public:
  LoopPipeline(ir::Kernel& kernel, const ir::Loop& loop, SourceLoc loc)
      : kernel_(kernel), loop_(loop), loc_(loc), counter_(loop.vars[0]) {}

  /// The loop without its copies that are issued ahead. `uses` counts the uses of each storage in the
  /// whole kernel.
  ir::Stmt run(const std::map<int, int>& uses, std::vector<std::string>& notes);

  bool copies_ahead() const { return !groups_.empty(); }
  /// Iterations that copies are issued ahead.
  int ahead() const { return ahead_; }

  /// Puts copies under more conditions; their commits stand outside of them.
  using Under = std::function<ir::Stmt(const ir::Stmt&)>;
  /// The copies of the iterations `begin` to `end`, which come before the loop.
  ir::Stmt first_copies(int begin, int end, const Under& under = nullptr);

  /// Throws PIPELINE_ACROSS unless the first copies can be issued a round of the loop around earlier; it is null
  /// where that is not a serial one. `notes` are those of run().
  void require_crossing(Crossing* crossing, bool manual_sync,
                        const std::vector<std::string>& notes);

 private:
  [[noreturn]] void refuse_crossing(std::string why) const;
  /// True if the product of an iteration may still run in the next one: its operands are not overwritten
  /// then if copies go one iteration less ahead.
  bool waits_late() const;

  std::shared_ptr<ir::Var> new_var(const ir::Var& like, std::string name);
  /// A loop index from 0 to `upper`.
  ir::VarRef new_counter(std::string name, ir::Expr upper);
  ir::Expr number(int64_t value) const { return ir::constant(loop_.vars[0]->type, value); }
  bool begins_at_zero() const { return ir::is_constant(loop_.begin, 0); }
  ir::Expr rounds() const {
    return begins_at_zero() ? loop_.extents[0] : loop_.extents[0] - loop_.begin;
  }

  std::vector<const Producer*> producers() const;
  /// Gives every tile that is copied ahead its versions.
  void version_tiles();
  /// The uses of versioned tiles in `body` as uses of version `iteration` % versions.
  void use_version(ir::Body& body, const ir::Expr& iteration) const;
  /// The copies of a group for round `round`, if there is such a round, and the commit.
  void issue(const CopyGroup& group, const ir::Expr& round, ir::Body& out,
             const Under& under = nullptr);
  ir::Stmt main_loop();

  ir::Kernel& kernel_;
  const ir::Loop& loop_;
  const SourceLoc loc_;
  ir::VarRef counter_;  // of the rounds, from 0
  int ahead_ = loop_.ahead();
  bool issues_last_ = loop_.in_place;  // after the last reader of what is copied
  std::vector<CopyGroup> groups_;
  std::map<int, ir::BufferRef> versioned_;  // by id of the buffer it replaces
};

}  // namespace tessera::codegen
