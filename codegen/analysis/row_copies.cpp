#include "codegen/analysis/row_copies.h"

#include <algorithm>

#include "codegen/passes/walk.h"

namespace tessera::codegen {
namespace {

constexpr int kMostGroups = 14;  // more are waited for earlier

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

}  // namespace tessera::codegen
