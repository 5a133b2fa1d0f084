// Recorder: index ranges that are certain for the loops around a statement.

#include <fmt/format.h>

#include <algorithm>

#include "dsl/recorder.h"

namespace tessera::dsl {

void Recorder::iterate(const ir::VarRef& var, int64_t first, int64_t last, bool parallel) {
  iterations_.push_back({var, first, last, parallel, returns});
}

std::vector<Recorder::Corner> Recorder::corners(const ir::Expr& e) const {
  constexpr size_t kMostIndices = 6;
  std::vector<ir::VarRef> vars;
  ir::collect_vars(e, vars);
  std::vector<const Iteration*> iterations;
  for (const ir::VarRef& var : vars) {
    const auto found = std::find_if(iterations_.begin(), iterations_.end(),
                                    [&](const Iteration& it) { return it.var == var; });
    if (found == iterations_.end() || found->returns != returns) return {};
    iterations.push_back(&*found);
  }
  if (iterations.size() > kMostIndices) return {};
  std::vector<Corner> result;
  for (size_t choice = 0; choice < size_t{1} << iterations.size(); ++choice) {
    Corner corner;
    const auto value_of = [&](size_t i) {
      return (choice >> i & 1) != 0 ? iterations[i]->first : iterations[i]->last;
    };
    for (size_t i = 0; i < iterations.size(); ++i) {
      const ir::Var& var = *iterations[i]->var;
      corner.where +=
          fmt::format("{}{} = {}", corner.where.empty() ? "" : ", ", var.name, value_of(i));
      if (var.kind == ir::VarKind::loop) corner.loop = var.loc;
    }
    const ir::Expr value = ir::substitute(e, [&](const ir::VarRef& var) {
      const auto at = std::find(vars.begin(), vars.end(), var) - vars.begin();
      return ir::constant(var->type, value_of(static_cast<size_t>(at)));
    });
    if (!ir::is_constant(value)) return {};
    corner.value = value->integer;
    result.push_back(std::move(corner));
  }
  return result;
}

void Recorder::check_one_writer(const ir::ElementStore& store, SourceLoc loc) const {
  const ir::Space space = store.buffer->space;
  // Threads have their own variables, and a layout may keep such iterations in one thread.
  const bool seen_by_others =
      space == ir::Space::global || space == ir::Space::shared || space == ir::Space::cluster;
  if (!seen_by_others) return;
  std::vector<ir::VarRef> used;
  for (const ir::Expr& index : store.indices) ir::collect_vars(index, used);
  for (const ir::VarRef& var : used) {
    // Values computed by the thread or the iteration may differ between iterations.
    if (var->kind == ir::VarKind::thread || var->kind == ir::VarKind::value) return;
  }
  const auto shared = std::find_if(iterations_.begin(), iterations_.end(), [&](const auto& it) {
    return it.parallel && it.first < it.last &&
           std::find(used.begin(), used.end(), it.var) == used.end();
  });
  if (shared == iterations_.end()) return;
  std::vector<ir::VarRef> values;
  ir::collect_vars(store.value, values);
  for (const ir::VarRef& var : values) {
    const auto load = loads_.find(var->id);
    if (load == loads_.end() || load->second.buffer->id != store.buffer->id) continue;
    if (!std::equal(store.indices.begin(), store.indices.end(), load->second.indices.begin(),
                    ir::equal)) {
      continue;
    }
    std::string element = store.buffer->name + "[";
    for (const ir::Expr& index : store.indices) {
      element += (element.back() == '[' ? "" : ", ") + to_string(index);
    }
    element += ']';
    fail("ONE_ELEMENT",
         fmt::format("all iterations of a parallel loop change one element, {}", element), loc,
         "an element of its own for each iteration",
         fmt::format("one for {} = {} .. {}", shared->var->name, shared->first, shared->last),
         "use k.reduce_sum (_max, _min) of a fragment, k.reducer or k.atomic_add",
         shared->var->loc);
  }
}

}  // namespace tessera::dsl
