#include "codegen/passes/iteration_copies.h"

#include <algorithm>
#include <set>

#include "codegen/passes/tile_uses.h"

namespace tessera::codegen {
namespace {

/// What one body does, as far as it matters to copies of it.
struct Effects {
  std::map<int, int> uses;                        // of registers, by id of their storage
  std::set<int> written_registers;                // the same ids
  std::set<int> read, written;                    // memory, by id of its storage
  std::set<int> read_globally, written_globally;  // the part that insert_barriers does not order
  bool happens_once = false;                      // an effect that a second copy would repeat
  bool meets_others = false;                      // waits for other threads
};

void add(const ir::Body& body, Effects& effects);

void add(const ir::Stmt& stmt, Effects& effects) {
  if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) return add(loop->body, effects);
  if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
    add(branch->then, effects);
    return add(branch->otherwise, effects);
  }
  if (const auto* call = std::get_if<ir::ExternCall>(&stmt.node)) {
    effects.meets_others = effects.meets_others || call->function->synchronises;
    const bool has_effect = !call->function->pure && !call->function->synchronises;
    effects.happens_once = effects.happens_once || has_effect;
  } else if (const auto* atomic = std::get_if<ir::Atomic>(&stmt.node)) {
    effects.happens_once = effects.happens_once || atomic->old != nullptr;
  }
  effects.meets_others = effects.meets_others ||
                         std::holds_alternative<ir::Collective>(stmt.node) ||
                         std::holds_alternative<ir::Sync>(stmt.node);
  const bool contributes = std::holds_alternative<ir::ReducerUpdate>(stmt.node);  // once as it is
  for_each_use(stmt, [&](const ir::BufferRef& buffer, bool writes) {
    const ir::Space space = buffer->space;
    const int id = memory_of(*buffer);
    if (space == ir::Space::shared) {
      (writes ? effects.written : effects.read).insert(id);
    } else if (space == ir::Space::global || space == ir::Space::cluster) {
      (writes ? effects.written : effects.read).insert(id);
      (writes ? effects.written_globally : effects.read_globally).insert(id);
    } else {
      ++effects.uses[id];
      if (writes && !contributes) effects.written_registers.insert(id);
    }
  });
}

void add(const ir::Body& body, Effects& effects) {
  for (const ir::Stmt& stmt : body) add(stmt, effects);
}

bool intersect(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int id) { return b.contains(id); });
}

Copies copies_of(const ir::Body& body, const std::map<int, int>& uses_in_kernel) {
  Effects effects;
  add(body, effects);
  const bool in_place = intersect(effects.read, effects.written);
  if (!in_place && !effects.happens_once) return Copies::all;
  const bool leaves_registers =
      std::any_of(effects.written_registers.begin(), effects.written_registers.end(),
                  [&](int id) { return effects.uses.at(id) != uses_in_kernel.at(id); });
  if (!leaves_registers && !effects.meets_others) return Copies::first;
  const bool globally = intersect(effects.read_globally, effects.written_globally);
  return globally || effects.happens_once ? Copies::none : Copies::all;
}

void visit(const ir::Body& body, const std::map<int, int>& uses,
           std::map<const ir::Loop*, Copies>& result) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
      if (loop->kind == ir::LoopKind::parallel) {
        result[loop] = copies_of(loop->body, uses);
      } else {
        visit(loop->body, uses, result);
      }
    } else if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
      visit(branch->then, uses, result);
      visit(branch->otherwise, uses, result);
    }
  }
}

}  // namespace

std::map<const ir::Loop*, Copies> copies_of_loops(const ir::Kernel& kernel) {
  Effects all;
  add(kernel.body, all);
  std::map<const ir::Loop*, Copies> result;
  visit(kernel.body, all.uses, result);
  return result;
}

}  // namespace tessera::codegen
