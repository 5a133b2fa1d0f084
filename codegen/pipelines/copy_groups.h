#pragma once
// Which copies of a pipelined loop can be issued ahead of the iteration that reads them.

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// A statement of the body that only copies from global to shared memory, perhaps under a condition.
/// Positions are those of the body's statements.
struct Producer {
  size_t position = 0;
  size_t consumer = 0;        // the first statement that reads one of its tiles
  size_t last_reader = 0;     // the last statement that reads one
  std::set<size_t> replayed;  // statements that define its condition and addresses
  ir::Expr condition;         // null = always
  ir::Body copies;            // ir::Copy, or ir::Loop of a copy of rows
  SourceLoc loc;
};

/// True if the statement orders the accesses of this block and of others.
bool meets_blocks(const ir::Stmt& stmt);

/// Producers whose tiles are first read by the same statement.
struct CopyGroup {
  size_t consumer = 0;
  std::vector<Producer> producers;
};

/// The uses of each storage in the kernel, by its id.
std::map<int, int> count_uses(const ir::Kernel& kernel);

/// Why copies stay in their iteration; empty if nothing is in the way.
using StaysBecause = std::function<std::string(const Producer&)>;

/// Finds the copies of a pipelined loop that can be issued ahead, in groups ordered by first
/// reader. `uses` are those of the kernel; `stays` knows more reasons. Adds a note per
/// statement that only copies: issued ahead, or why not.
std::vector<CopyGroup> find_copy_groups(const ir::Loop& loop, const std::map<int, int>& uses,
                                        std::vector<std::string>& notes,
                                        const StaysBecause& stays = nullptr);

}  // namespace tessera::codegen
