#pragma once
// Liveness of shared arrays, in steps of the outermost statements. Arrays that are never live together
// may share memory, with a barrier between the last use of one and the first use of the other.

#include <map>
#include <optional>
#include <string>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// The first and last outermost statement that accesses an array. A loop is one statement: an array
/// that it uses is live through all its rounds.
struct Lifetime {
  size_t first = 0, last = 0;
  /// Set if copies into the array are never awaited: a wait for all groups behind this statement, the last
  /// one that accesses it, would end the lifetime there. Until then it lives to the end.
  std::optional<size_t> ends_if_awaited = {};

  bool meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

/// Lifetimes of all arrays that the program accesses. What copies in groups write lives until an
/// outermost wait for all groups. No barrier can order arrays that other copies write, that a
/// manual-sync region accesses or other blocks: these live through the whole program. So do all arrays
/// of a program whose threads may exit early, because a barrier would wait for them.
std::map<const Array*, Lifetime> shared_lifetimes(const Program& program);

/// Two arrays of a program with a placed arena that are in use together and overlap: "'a' and 'b'"; empty
/// if there are none.
std::string meeting_in_arena(const Program& program);

}  // namespace tessera::codegen
