#pragma once
// When shared arrays are in use, in steps of the outermost statements: arrays that are not in use
// together may lie in the same memory, with a barrier between the last use of one and the first of
// the other.

#include <map>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// The first and last outermost statement that touches an array; a loop is one statement, so what is
/// used in it is in use all around it.
struct Lifetime {
  size_t first = 0, last = 0;
  bool meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

/// Of all arrays that are touched. To the end of the program live those that are written
/// asynchronously or in a manual-sync region, where no barrier can be put, or reached by other blocks,
/// which no barrier of this one waits for; and all if some threads leave early, which a barrier would
/// wait for.
std::map<const Array*, Lifetime> shared_lifetimes(const Program& program);

}  // namespace tessera::codegen
