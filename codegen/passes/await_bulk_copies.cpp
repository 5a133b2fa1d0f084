#include "codegen/passes/await_bulk_copies.h"

#include <algorithm>

#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

bool starts_bulk_copy(const ir::Stmt& stmt) {
  const auto* copy = std::get_if<ir::Copy>(&stmt.node);
  return copy != nullptr && copy->plan.when == ir::CopyTime::awaited &&
         copy->plan.engine == ir::Engine::bulk;
}

}  // namespace

void await_bulk_copies(ir::Body& body) {
  const bool any = std::any_of(body.begin(), body.end(),
                               [](const ir::Stmt& stmt) { return any_in(stmt, starts_bulk_copy); });
  if (any) body.push_back({ir::AsyncWait{-1, 0}, {}});
}

}  // namespace tessera::codegen
