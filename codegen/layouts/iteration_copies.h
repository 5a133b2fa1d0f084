#pragma once
// Which copies of an iteration run it. A parallel loop with fewer iterations than the block has
// threads gives each iteration to several threads. Most loops run in all of them: each thread then has
// the registers that the loop writes, and only the first copy stores to memory. Two kinds of loops
// must not run twice: a loop that reads memory which it overwrites (a later copy would read what the
// first copy stored), and a loop with effects other than stores (a call of an impure function, an
// atomic whose old value is used). A loop that only moves global memory to other memory need not: it
// would load for nothing.

#include <cstdint>
#include <map>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

enum class Copies : uint8_t {
  all,    // every copy runs the body, the first one stores
  first,  // the first copy runs the body, the others skip it
  none,   // the loop needs a layout that gives each iteration to one thread
};

/// By loop_id of the kernel's parallel loops. `first` requires a body that defines no registers for later statements
/// and has neither barriers nor collectives. Otherwise a loop that works in place on shared memory alone is `all`:
/// insert_barriers orders its copies.
std::map<int, Copies> copies_of_loops(const ir::Kernel& kernel);

}  // namespace tessera::codegen
