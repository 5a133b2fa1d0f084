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

  /// Rewrites the statement `at` (at any depth of the kernel's body) so that the use `misfit` of a
  /// fragment becomes a use of a shared copy. A parallel loop indexes the copy, which is filled
  /// before the loop and, if the loop writes, read back after it. Of a loop that makes a narrower
  /// fragment of it, as bf16 of f32, the narrower one goes through the copy. A reduction writes to a new
  /// fragment, which is then copied. A product takes its left operand from the copy. Returns a note.
  std::string stage(const ir::Stmt* at, const FragmentUse& misfit);

 private:
  ir::BufferRef shared_copy(const ir::Buffer& fragment, SourceLoc loc);
  ir::Stmt copy(const ir::BufferRef& from, const ir::BufferRef& to, SourceLoc loc);

  ir::Kernel& kernel_;
  std::map<int, ir::BufferRef> copies_;  // by Buffer::id
};

}  // namespace tessera::codegen
