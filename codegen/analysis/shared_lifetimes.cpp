#include "codegen/analysis/shared_lifetimes.h"

#include <algorithm>

#include "codegen/analysis/uniform.h"
#include "codegen/passes/walk.h"

namespace tessera::codegen {
namespace {

/// True if threads of a block may leave at different times.
bool threads_leave_apart(const Program& program) {
  const UniformValues uniform(program);
  bool apart = false;
  for (const Stmt& outer : program.body) {
    const auto* leave = std::get_if<Return>(&outer.node);
    if (leave != nullptr) apart = apart || !uniform(leave->condition);
    const auto inner = [&](const Stmt& stmt) {
      apart = apart || std::holds_alternative<Return>(stmt.node);
    };
    if (const auto* loop = std::get_if<For>(&outer.node)) walk(loop->body, inner);
    if (const auto* branch = std::get_if<If>(&outer.node)) {
      walk(branch->then, inner);
      walk(branch->otherwise, inner);
    }
  }
  return apart;
}

}  // namespace

std::map<const Array*, Lifetime> shared_lifetimes(const Program& program) {
  std::map<const Array*, Lifetime> result;
  const bool forever = threads_leave_apart(program);
  size_t step = 0;
  const auto use = [&](const Stmt& stmt) {
    const auto* view = std::get_if<Declare>(&stmt.node);
    if (view != nullptr && view->array->mine) {  // other blocks come at any time
      result[view->array->mine.get()] = {0, program.body.size()};
    }
    for_each_access(stmt, [&](const Access& access, bool writes) {
      if (access.array->space != ArraySpace::shared) return;
      Lifetime& lifetime =
          result.try_emplace(access.array.get(), Lifetime{step, step}).first->second;
      lifetime.last = std::max(lifetime.last, step);
      const bool background = writes && std::holds_alternative<AsyncCopy>(stmt.node);
      if (forever || background || stmt.manual_sync) lifetime = {0, program.body.size()};
    });
  };
  for (; step < program.body.size(); ++step) {
    const Stmt& outer = program.body[step];
    use(outer);
    if (const auto* loop = std::get_if<For>(&outer.node)) walk(loop->body, use);
    if (const auto* branch = std::get_if<If>(&outer.node)) {
      walk(branch->then, use);
      walk(branch->otherwise, use);
    }
  }
  return result;
}

}  // namespace tessera::codegen
