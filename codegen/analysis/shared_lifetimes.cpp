#include "codegen/analysis/shared_lifetimes.h"

#include <algorithm>

#include "codegen/analysis/uniform.h"
#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

/// True if threads of a block may exit at different times.
bool threads_leave_apart(const Program& program) {
  const UniformValues uniform(program);
  const auto leaves = [](const Stmt& stmt) { return has_order(stmt, Order::Kind::leave); };
  return std::any_of(program.body.begin(), program.body.end(), [&](const Stmt& stmt) {
    const auto* leave = std::get_if<Return>(&stmt.node);
    return leave != nullptr ? !uniform(leave->condition) : any_in(stmt, leaves);
  });
}

}  // namespace

std::map<const Array*, Lifetime> shared_lifetimes(const Program& program) {
  std::map<const Array*, Lifetime> result;
  const bool forever = threads_leave_apart(program);
  size_t step = 0;
  const auto use = [&](const Stmt& stmt) {
    for_each_declaration(stmt, [&](const ArrayRef& view) {
      // Other blocks may access it at any time.
      if (view->mine) result[view->mine.get()] = {0, program.body.size()};
    });
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      const Array* array = effect.access.array.get();
      if (array->space != ArraySpace::shared) return;
      Lifetime& lifetime = result.try_emplace(array, Lifetime{step, step}).first->second;
      lifetime.last = std::max(lifetime.last, step);
      if (forever || effect.in_flight || stmt.manual_sync) lifetime = {0, program.body.size()};
    });
  };
  for (; step < program.body.size(); ++step) walk_stmt(program.body[step], use);
  return result;
}

}  // namespace tessera::codegen
