#include "codegen/analysis/row_copies.h"

#include <algorithm>
#include <set>

#include "codegen/analysis/footprint.h"
#include "codegen/passes/walk.h"

namespace tessera::codegen {
namespace {

constexpr int kMostGroups = 14;  // more are waited for earlier

/// Goes over `body`, where threads have stored to `stored` before.
bool rows_follow(const Body& body, std::set<const Array*>& stored) {
  bool found = false;
  for (const Stmt& stmt : body) {
    if (const auto* loop = std::get_if<For>(&stmt.node)) {
      // A round meets what the one before left behind.
      found = found || rows_follow(loop->body, stored) || rows_follow(loop->body, stored);
    } else if (const auto* branch = std::get_if<If>(&stmt.node)) {
      found = found || rows_follow(branch->then, stored) || rows_follow(branch->otherwise, stored);
    }
    const auto* copy = std::get_if<AsyncCopy>(&stmt.node);
    const bool is_row = copy != nullptr && copy->is_row;
    for_each_access(stmt, [&](const Access& access, bool writes) {
      const Array* const array = access.array->space == ArraySpace::cluster
                                     ? access.array->mine.get()
                                     : access.array.get();
      if (!writes || array->space != ArraySpace::shared) return;
      if (!is_row) {
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
    const auto* copy = std::get_if<AsyncCopy>(&stmt.node);
    const auto* wait = std::get_if<AsyncWait>(&stmt.node);
    any_row = any_row || (copy != nullptr && copy->is_row);
    if (wait != nullptr) most = std::max(most, wait->pending);
  });
  return any_row ? std::min(most, kMostGroups) + 2 : 0;
}

bool rows_follow_stores(const Program& program) {
  std::set<const Array*> stored;
  return rows_follow(program.body, stored);
}

}  // namespace tessera::codegen
