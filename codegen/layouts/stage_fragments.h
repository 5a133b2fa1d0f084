#pragma once
// Relayout: stages a use of a fragment through shared memory where the fragment's layout does not fit.

#include <map>
#include <string>
#include <vector>

#include "codegen/layouts/fragment_layouts.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Stages uses of fragments in one kernel. Uses of the same fragment share one shared buffer.
class FragmentStaging {
 public:
  explicit FragmentStaging(ir::Kernel& kernel) : kernel_(kernel) {}

  /// Rewrites the statement `at` (of the kernel's body, at any depth) so that the use `use` of a
  /// fragment becomes one of a shared copy: a parallel loop indexes the copy, which is filled before
  /// it and, if the loop writes, read back after it; a reduction leaves its result in a fragment of
  /// its own, which is copied; a product takes its left operand from the copy. Returns a note.
  std::string stage(const ir::Stmt* at, const FragmentUse& use);

 private:
  ir::BufferRef shared_copy(const ir::Buffer& fragment, SourceLoc loc);
  ir::Stmt copy(const ir::BufferRef& from, const ir::BufferRef& to, SourceLoc loc);

  ir::Kernel& kernel_;
  std::map<int, ir::BufferRef> copies_;  // by Buffer::id
};

}  // namespace tessera::codegen
