#pragma once
// The first copies of a pipelined loop for the next round of the loop around it: PipelineOptions::across.
//
//   the first copies of round `begin`, if there is such a round
//   for t in begin .. end:
//     ...
//     the pipelined loop; all that it has copied is there
//     the first copies of round t + step, if there is such a round
//     ...
//
// Everything that the copies depend on in round t, values of its index and of inputs, is computed once more for the other
// round. Conditions around the pipelined loop are too: where round t does not run the loop, it still issues the
// first copies of the next round.

#include <set>
#include <string>
#include <vector>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// A serial loop and the conditions between it and a pipelined loop.
class Crossing {
 public:
  explicit Crossing(const ir::Loop& loop) : loop_(loop) {}

  /// A body of the loop, or of a condition in it, and the statement of it that leads to the pipelined loop.
  struct Level {
    const ir::Body* body;
    size_t position;
  };
  /// Outer before inner: the first is the body of the loop.
  std::vector<Level> levels;
  /// Set when a pipelined loop crosses it.
  bool is_crossed = false;

  /// Why `copies` cannot be issued in another round; empty if they can. Finds the statements to replay.
  std::string obstacle(const ir::Stmt& copies);
  /// `copies` for the first round, if there is one: before the loop.
  ir::Stmt for_first(ir::Kernel& kernel, const ir::Stmt& copies) const;
  /// `copies` for the next round, if there is one: in a round.
  ir::Stmt for_next(ir::Kernel& kernel, const ir::Stmt& copies) const;

 private:
  bool is_written(const ir::Buffer& buffer) const;
  bool begins_here(const ir::Buffer& buffer) const;
  std::string obstacle_of_reads(const ir::Stmt& stmt) const;
  std::string obstacle_of_value(const ir::VarRef& var);
  std::string obstacle_of_values(const ir::Stmt& stmt);
  ir::Stmt replayed(ir::Kernel& kernel, const ir::Stmt& copies, const ir::Expr& exists,
                    const ir::Expr& index) const;

  const ir::Loop& loop_;
  std::set<const ir::Stmt*> replays_;
};

}  // namespace tessera::codegen
