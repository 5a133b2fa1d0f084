#include "codegen/analysis/overwritten_stores.h"

#include <algorithm>
#include <set>

#include "codegen/analysis/footprint.h"
#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

/// True if a bulk copy follows stores to memory that it overwrites. Goes over `body`, where threads have
/// stored to `stored` before.
bool follows_stores(const Body& body, std::set<const Array*>& stored) {
  bool found = false;
  for (const Stmt& stmt : body) {
    for_each_body(stmt, [&](const Body& inner) {
      found = found || follows_stores(inner, stored);
      // A round of a loop meets what the one before left behind.
      found = found || (repeats(stmt) && follows_stores(inner, stored));
    });
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      const Array* const array = effect.access.array->space == ArraySpace::cluster
                                     ? effect.access.array->mine.get()
                                     : effect.access.array.get();
      if (!effect.writes || array->space != ArraySpace::shared) return;
      if (effect.proxy == Proxy::generic) {
        stored.insert(array);
        return;
      }
      found = found || std::any_of(stored.begin(), stored.end(),
                                   [&](const Array* other) { return overlap(*array, *other); });
    });
  }
  return found;
}

}  // namespace

bool overwrites_stores(const Body& body) {
  std::set<const Array*> stored;
  return follows_stores(body, stored);
}

}  // namespace tessera::codegen
