#include "codegen/analysis/row_copies.h"

#include <algorithm>
#include <set>

#include "codegen/analysis/footprint.h"
#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

constexpr int kMostGroups = 14;  // more are waited for earlier

/// Goes over `body`, where threads have stored to `stored` before.
bool rows_follow(const Body& body, std::set<const Array*>& stored) {
  bool found = false;
  for (const Stmt& stmt : body) {
    for_each_body(stmt, [&](const Body& inner) {
      found = found || rows_follow(inner, stored);
      // A round of a loop meets what the one before left behind.
      found = found || (repeats(stmt) && rows_follow(inner, stored));
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

int row_barriers(const Program& program) {
  bool any_row = false;
  int most = 0;
  walk(program.body, [&](const Stmt& stmt) {
    any_row = any_row || uses_async_proxy(stmt);
    most = std::max(most, most_in_flight(stmt));
  });
  return any_row ? std::min(most, kMostGroups) + 2 : 0;
}

bool rows_follow_stores(const Program& program) {
  std::set<const Array*> stored;
  return rows_follow(program.body, stored);
}

}  // namespace tessera::codegen
