#include "codegen/pipelines/free_variables.h"

#include <set>

#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

void collect(const ir::Stmt& stmt, std::set<ir::VarRef>& bound, std::vector<ir::VarRef>& free) {
  for_each_expression(stmt, [&](const ir::Expr& e) {
    std::vector<ir::VarRef> vars;
    ir::collect_vars(e, vars);
    for (const ir::VarRef& var : vars) {
      if (!bound.contains(var)) free.push_back(var);
    }
  });
  for_each_binding(stmt, [&](const ir::VarRef& var, const ir::Expr*) { bound.insert(var); });
  for_each_body(stmt, [&](const ir::Body& body) {
    for (const ir::Stmt& inner : body) collect(inner, bound, free);
  });
}

}  // namespace

std::vector<ir::VarRef> free_variables(const ir::Stmt& stmt) {
  std::set<ir::VarRef> bound;
  std::vector<ir::VarRef> free;
  collect(stmt, bound, free);
  return free;
}

bool binds(const ir::Stmt& stmt, const ir::VarRef& var) {
  bool found = false;
  for_each_binding(
      stmt, [&](const ir::VarRef& other, const ir::Expr*) { found = found || other == var; });
  return found;
}

}  // namespace tessera::codegen
