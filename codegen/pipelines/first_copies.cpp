#include "codegen/pipelines/first_copies.h"

#include <algorithm>
#include <set>

#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

/// True for statements that read anything, write only registers, and always terminate.
bool is_computation(const ir::Stmt& stmt) {
  return std::holds_alternative<ir::Let>(stmt.node) ||
         std::holds_alternative<ir::ElementLoad>(stmt.node) ||
         std::holds_alternative<ir::ElementStore>(stmt.node) ||
         std::holds_alternative<ir::Copy>(stmt.node) ||
         std::holds_alternative<ir::Fill>(stmt.node) ||
         std::holds_alternative<ir::Reduce>(stmt.node) ||
         std::holds_alternative<ir::Loop>(stmt.node) || std::holds_alternative<ir::If>(stmt.node) ||
         ir::is_mark(stmt);
}

bool only_computes(const ir::Stmt& stmt) {
  bool writes_memory = false;
  for_each_use(stmt, [&](const ir::BufferRef& buffer, bool writes) {
    const ir::Space space = storage_of(*buffer).space;
    const bool in_registers = space == ir::Space::fragment || space == ir::Space::local;
    writes_memory = writes_memory || (writes && !in_registers);
  });
  return !writes_memory &&
         !any_in(stmt, [](const ir::Stmt& inner) { return !is_computation(inner); });
}

void collect_vars(const ir::Stmt& stmt, std::vector<ir::VarRef>& vars) {
  for_each_expression(stmt, [&](const ir::Expr& e) { ir::collect_vars(e, vars); });
  for_each_body(stmt, [&](const ir::Body& body) {
    for (const ir::Stmt& inner : body) collect_vars(inner, vars);
  });
}

}  // namespace

size_t earliest_place(const ir::Body& before, const ir::Stmt& copies) {
  std::vector<ir::VarRef> vars;
  collect_vars(copies, vars);
  const std::set<ir::VarRef> used(vars.begin(), vars.end());
  std::set<int> read;  // indices of rows, by the number of their storage
  for_each_use(copies, [&](const ir::BufferRef& buffer, bool writes) {
    if (!writes) read.insert(storage_of(*buffer).id);
  });
  size_t place = before.size();
  for (; place > 0; --place) {
    const ir::Stmt& stmt = before[place - 1];
    bool defines = false;
    for_each_binding(stmt, [&](const ir::VarRef& var, const ir::Expr*) {
      defines = defines || used.contains(var);
    });
    for_each_use(stmt, [&](const ir::BufferRef& buffer, bool writes) {
      defines = defines || (writes && read.contains(storage_of(*buffer).id));
    });
    if (defines || !only_computes(stmt) || stmt.manual_sync != copies.manual_sync) break;
  }
  // Hoisting above definitions and constants alone gains nothing.
  while (place < before.size() &&
         (std::holds_alternative<ir::Let>(before[place].node) ||
          std::holds_alternative<ir::Fill>(before[place].node) || ir::is_mark(before[place]))) {
    ++place;
  }
  return place;
}

size_t place_behind_loads(const ir::Body& body, size_t place) {
  const auto loads = [](const ir::Stmt& stmt) {
    bool result = false;
    for_each_use(stmt, [&](const ir::BufferRef& buffer, bool writes) {
      result = result || (!writes && storage_of(*buffer).space == ir::Space::global);
    });
    return result;
  };
  size_t last = body.size();
  while (last > place && !loads(body[last - 1])) --last;
  return last;
}

}  // namespace tessera::codegen
