#include "codegen/cpu/compiler/index_vars.h"

#include <functional>
#include <unordered_map>
#include <vector>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen::cpu {

std::unordered_set<const ir::Var*> find_index_vars(const Body& body) {
  std::unordered_set<const ir::Var*> found;
  std::unordered_map<const ir::Var*, Expr> lets;
  const std::function<void(const Expr&)> add = [&](const Expr& e) {
    std::vector<VarRef> used;
    collect_vars(e, used);
    for (const VarRef& var : used) {
      if (!found.insert(var.get()).second) continue;
      // Definitions come before uses, so the let has been seen.
      if (const auto let = lets.find(var.get()); let != lets.end()) add(let->second);
    }
  };
  walk(body, [&](const Stmt& stmt) {
    for_each_binding(stmt, [&](const VarRef& var, const Expr* value) {
      if (value != nullptr) lets[var.get()] = *value;
    });
    for_each_access(stmt, [&](const Access& access, bool) {
      add(access.offset);
      for (const Expr& index : access.indices) add(index);
    });
  });
  return found;
}

}  // namespace tessera::codegen::cpu
