#include "codegen/analysis/uniform.h"

#include <algorithm>

#include "codegen/passes/walk.h"

namespace tessera::codegen {

UniformValues::UniformValues(const Program& program, Over over) : over_(over) {
  // Definitions come before uses.
  walk(program.body, [&](const Stmt& stmt) {
    if (const auto* let = std::get_if<Let>(&stmt.node)) {
      if ((*this)(let->value)) values_.insert(let->var.get());
    } else if (const auto* present = std::get_if<Present>(&stmt.node)) {
      values_.insert(present->var.get());
    } else if (const auto* load = std::get_if<Load>(&stmt.node)) {
      const Access& from = load->from;
      const bool constant_memory = from.array->space == ArraySpace::global && from.array->read_only;
      if (load->var && constant_memory && (*this)(from.offset) &&
          (!from.guard || (*this)(from.guard))) {
        values_.insert(load->var.get());
      }
    } else if (const auto* loop = std::get_if<For>(&stmt.node)) {
      if (!(*this)(loop->begin) || !(*this)(loop->end)) varying_loops_.insert(loop->var.get());
    }
  });
}

bool UniformValues::operator()(const Expr& e) const {
  std::vector<VarRef> vars;
  ir::collect_vars(e, vars);
  return std::none_of(vars.begin(), vars.end(), [&](const VarRef& var) {
    if (var->kind == ir::VarKind::thread) return true;
    if (var->kind == ir::VarKind::block && over_ == Over::grid) return true;
    if (varying_loops_.contains(var.get())) return true;
    return var->kind == ir::VarKind::value && !values_.contains(var.get());
  });
}

}  // namespace tessera::codegen
