#pragma once
// Liveness of shared arrays, in steps of the outermost statements. Arrays that are never live together
// may share memory, with a barrier between the last use of one and the first use of the other.

#include <map>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// The first and last outermost statement that accesses an array. A loop is one statement: an array
/// that it uses is live through all its rounds.
struct Lifetime {
  size_t first = 0, last = 0;
  bool meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

/// Lifetimes of all arrays that the program accesses. No barrier can order arrays that are written
/// asynchronously, accessed in a manual-sync region or accessed by other blocks: these live to the end
/// of the program. So do all arrays of a program whose threads may exit early, because a barrier would
/// wait for them.
std::map<const Array*, Lifetime> shared_lifetimes(const Program& program);

}  // namespace tessera::codegen
