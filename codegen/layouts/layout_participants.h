#pragma once
// Everything that constrains the layout of a fragment: parallel loops, reductions, finalized reducers,
// matrix products, and reads outside parallel loops.

#include <map>
#include <set>
#include <vector>

#include "codegen/analysis/index_form.h"
#include "codegen/layouts/fragment_layouts.h"
#include "codegen/layouts/iteration_copies.h"
#include "codegen/thread_group.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// A global or shared access in a parallel loop.
struct MemoryUse {
  ir::BufferRef buffer;
  std::vector<ir::Expr> indices;
  bool written = false;
};

/// Exactly one of loop, reduce, finalize, gemm and read is set.
struct Participant {
  const ir::Stmt* stmt = nullptr;  // its statement in the kernel
  const ir::Loop* loop = nullptr;
  const ir::Reduce* reduce = nullptr;
  const ir::ReducerFinalize* finalize = nullptr;
  const ir::Gemm* gemm = nullptr;
  const ir::ElementLoad* read = nullptr;  // of a fragment, by every thread
  std::vector<FragmentUse>
      fragments;  // of a loop: one entry per index tuple; reduce, finalize: from, to
  std::vector<MemoryUse> memory;
  Copies copies = Copies::all;  // of a loop
  ThreadGroup threads;          // that take part; layouts number them from 0
  SourceLoc loc;
  int component = -1;  // participants of one component are connected through fragments
};

struct Participants {
  std::vector<Participant> all;            // in program order
  std::map<int, ir::BufferRef> fragments;  // by Buffer::id, views included
  std::map<int, ThreadGroup> holders;  // of fragments, by Buffer::id: the threads that hold them
  std::set<int> reducers;              // fragments whose replicas differ until they are finalized
  std::set<int> updated;               // reducers with contributions
  int num_components = 0;
  IndexMath math;  // knows the values of integer lets
};

/// The participants point into `kernel`. Throws NESTED_PARALLEL, and FRAG_OUTSIDE_PARALLEL for a
/// store to a fragment outside a parallel loop.
Participants find_participants(const ir::Kernel& kernel);

/// The buffer whose storage `buffer` shares.
int root_id(const ir::Buffer& buffer);

}  // namespace tessera::codegen
