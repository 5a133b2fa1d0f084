#pragma once
// Which copies of an iteration run it. A parallel loop with fewer iterations than the block has
// threads hands each iteration to several threads. Most loops run in all of them: then each thread
// has the registers that the loop writes, and only the first copy stores to memory. Two kinds of loops
// must not run twice: one that reads memory which it writes in place (a later copy would read what the
// first one has stored), and one with an effect beside stores (a call of an impure function, an atomic
// whose old value is used).

#include <cstdint>
#include <map>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

enum class Copies : uint8_t {
  all,    // every copy runs the body, the first one stores
  first,  // the first copy runs the body, the others skip it
  none,   // the loop needs a layout that gives each iteration to one thread
};

/// By loop_id of the parallel loops of the kernel. `first` needs a body that defines no registers for
/// later statements and has neither barrier nor collective. Otherwise a loop that works in place on shared memory alone
/// is `all`: insert_barriers orders its copies.
std::map<int, Copies> copies_of_loops(const ir::Kernel& kernel);

}  // namespace tessera::codegen
