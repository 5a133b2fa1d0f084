#include "codegen/passes/first_copies.h"

#include <algorithm>
#include <set>

#include "codegen/passes/tile_uses.h"

namespace tessera::codegen {
namespace {

bool only_computes(const ir::Stmt& stmt);

bool only_computes(const ir::Body& body) {
  return std::all_of(body.begin(), body.end(),
                     [](const ir::Stmt& stmt) { return only_computes(stmt); });
}

/// Reads what it likes, writes registers, and comes to its end.
bool only_computes(const ir::Stmt& stmt) {
  bool writes_memory = false;
  for_each_use(stmt, [&](const ir::BufferRef& buffer, bool writes) {
    const ir::Space space = storage_of(*buffer).space;
    const bool in_registers = space == ir::Space::fragment || space == ir::Space::local;
    writes_memory = writes_memory || (writes && !in_registers);
  });
  if (writes_memory) return false;
  if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) return only_computes(loop->body);
  if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
    return only_computes(branch->then) && only_computes(branch->otherwise);
  }
  return std::holds_alternative<ir::Let>(stmt.node) ||
         std::holds_alternative<ir::ElementLoad>(stmt.node) ||
         std::holds_alternative<ir::ElementStore>(stmt.node) ||
         std::holds_alternative<ir::Copy>(stmt.node) ||
         std::holds_alternative<ir::Fill>(stmt.node) ||
         std::holds_alternative<ir::Reduce>(stmt.node);
}

void collect_vars(const ir::Body& body, std::vector<ir::VarRef>& vars) {
  const auto collect = [&](const std::vector<ir::Expr>& expressions) {
    for (const ir::Expr& e : expressions) {
      if (e) ir::collect_vars(e, vars);
    }
  };
  for (const ir::Stmt& stmt : body) {
    if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
      collect({loop->begin, loop->step});
      collect(loop->extents);
      collect_vars(loop->body, vars);
    } else if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
      collect({branch->condition});
      collect_vars(branch->then, vars);
      collect_vars(branch->otherwise, vars);
    } else if (const auto* let = std::get_if<ir::Let>(&stmt.node)) {
      collect({let->value});
    } else if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
      collect(load->indices);
    } else if (const auto* copy = std::get_if<ir::Copy>(&stmt.node)) {
      for (const ir::Region* region : {&copy->from, &copy->to}) {
        collect(region->offsets);
        collect(region->extents);
      }
    }
  }
}

}  // namespace

size_t earliest_place(const ir::Body& before, const ir::Stmt& copies) {
  std::vector<ir::VarRef> vars;
  collect_vars({copies}, vars);
  const std::set<ir::VarRef> used(vars.begin(), vars.end());
  size_t place = before.size();
  for (; place > 0; --place) {
    const ir::Stmt& stmt = before[place - 1];
    const auto* let = std::get_if<ir::Let>(&stmt.node);
    const auto* load = std::get_if<ir::ElementLoad>(&stmt.node);
    const bool defines = (let != nullptr && used.contains(let->var)) ||
                         (load != nullptr && used.contains(load->var));
    if (defines || !only_computes(stmt) || stmt.manual_sync != copies.manual_sync) break;
  }
  // Nothing is won by passing definitions and constants alone.
  while (place < before.size() && (std::holds_alternative<ir::Let>(before[place].node) ||
                                   std::holds_alternative<ir::Fill>(before[place].node))) {
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
