// A fixed point from above: all registers and loops count as uniform until a statement shows otherwise, and each walk through
// the program may find more that vary, since values follow from registers and registers from values. Both sets only grow, so the
// walks end; values are computed anew in each walk, in the order of the program, where definitions come before uses.
//
//   value       varies if its expression names the thread, a varying value, or (over the grid) the block
//   register    varies once a store puts a varying value into it, or is executed by a part of the threads: those that
//               were left out keep the old value. Also if two roles write it or one writes what the other reads
//   loop        its index varies if its bounds do; `parted_` holds loops that threads leave by break_if in different rounds,
//               behind which their indices differ
//   branch      its bodies are not executed together if its condition varies, which `together` carries down
//
// Starting from below would give the same answer only for programs without loops: a register that is read at the top of a
// loop and written at its end would vary because nothing is known of it yet.
//
// why_not() goes the way back: it follows the first varying variable to the reason that was noted for it (`Origin`), through
// stores into registers at most kMostRegisters times.

#include "codegen/analysis/uniform.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

constexpr int kMostRegisters = 3;  // that a message goes through

/// True for a collective that gives all lanes of the warp the same.
bool is_same_in_all_lanes(const Collective& collective) {
  switch (collective.kind) {
    case ir::CollectiveKind::reduce_add:
    case ir::CollectiveKind::reduce_min:
    case ir::CollectiveKind::reduce_max:
    case ir::CollectiveKind::reduce_and:
    case ir::CollectiveKind::reduce_or:
    case ir::CollectiveKind::vote_any:
    case ir::CollectiveKind::vote_all:
    case ir::CollectiveKind::ballot:
      return collective.width == kThreadsPerWarp;
    default:
      return false;
  }
}

}  // namespace

UniformValues::UniformValues(const Program& program, Over over, const std::vector<VarRef>& known)
    : program_(program), over_(over), group_(program.block()) {
  walk(program.body, [&](const Stmt& stmt) {
    for_each_declaration(stmt, [&](const ArrayRef& view) {
      if (view->mine) ordered_by_author_.insert(view->mine.get());
    });
    if (!stmt.manual_sync) return;
    for_each_access(
        stmt, [&](const Access& access, bool) { ordered_by_author_.insert(access.array.get()); });
  });
  mark_shared_registers(program);
  // Registers count as uniform until a store proves otherwise, which may propagate to others.
  size_t before = 0;
  do {
    before = varying_.size() + parted_.size();
    values_.clear();
    varying_loops_.clear();
    origins_.clear();
    if (over == Over::block) {
      for (const VarRef& var : known) values_.insert(var.get());
    }
    visit(program.body, true);
  } while (varying_.size() + parted_.size() != before);
}

/// `together`: all threads execute the body. Definitions come before uses.
void UniformValues::visit(const Body& body, bool together) {
  for (const Stmt& stmt : body) visit(stmt, together);
}

void UniformValues::visit(const Stmt& stmt, bool together) {
  // A value that these do not determine differs between threads.
  if (const auto* let = std::get_if<Let>(&stmt.node)) {
    const bool is_vouched = let->is_vouched && over_ == Over::block;
    return define(*let->var, is_vouched || (*this)(let->value), {let->value});
  }
  if (const auto* bodies = std::get_if<RoleBodies>(&stmt.node)) return visit(*bodies, together);
  if (const auto* present = std::get_if<Present>(&stmt.node)) {
    values_.insert(present->var.get());
    return;
  }
  if (const auto* load = std::get_if<Load>(&stmt.node); load != nullptr && load->var) {
    const bool uniform = is_uniform(*load, together);
    return define(*load->var, uniform, uniform ? Origin() : origin_of(*load, together));
  }
  if (const auto* store = std::get_if<Store>(&stmt.node)) {
    const bool uniform =
        together && store->value && (*this)(store->value) && (*this)(store->to.offset);
    if (uniform) return;
    if (store->value && !(*this)(store->value))
      stored_.emplace(store->to.array.get(), store->value);
  }
  if (const auto* collective = std::get_if<Collective>(&stmt.node)) {
    const bool uniform = over_ == Over::block && group_.count <= kThreadsPerWarp && together &&
                         is_same_in_all_lanes(*collective);
    return define(*collective->var, uniform,
                  {{}, "a warp collective gives each warp its own result"});
  }
  for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
    if (effect.writes) varies(effect.access.array);
  });
  for_each_register_effect(stmt, [&](const RegisterEffect& effect) {
    if (effect.writes) varies(effect.slice.array);
  });
  bool same = true;  // whether all threads run the bodies equally often
  for_each_expression(stmt, [&](const Expr& e) { same = same && (*this)(e); });
  const auto* loop = std::get_if<For>(&stmt.node);
  same = same && (loop == nullptr || !parted_.contains(loop));
  for_each_binding(stmt, [&](const VarRef& var, const Expr*) {
    if (var->kind != ir::VarKind::loop) return define(*var, false, own_result(stmt));
    if (!same) varying_loops_.insert(var.get());
  });
  for_each_body(stmt, [&](const Body& body) { visit(body, together && same); });
  const Break* leave = loop == nullptr ? nullptr : break_of(*loop);
  if (leave != nullptr && !(*this)(leave->condition)) parted_.insert(loop);
}

void UniformValues::visit(const RoleBodies& bodies, bool together) {
  for (const RoleBodies::Role& role : bodies.roles) {
    // Over the grid, roles are parts of it and nothing in them is uniform.
    group_ = role.threads;
    visit(role.body, together && over_ == Over::block);
  }
  group_ = program_.block();
}

void UniformValues::mark_shared_registers(const Program& program) {
  std::map<const Array*, const Body*> owners;  // the only body that names the array
  const auto note = [&](const Body& body) {
    for (const Stmt& stmt : body) {
      if (std::holds_alternative<RoleBodies>(stmt.node)) continue;
      walk_stmt(stmt, [&](const Stmt& inner) {
        for_each_array(inner, [&](const ArrayRef& array) {
          const Body*& owner = owners.try_emplace(array.get(), &body).first->second;
          if (owner != &body) owner = nullptr;
        });
      });
    }
  };
  note(program.body);
  for (const Stmt& stmt : program.body) {
    if (const auto* bodies = std::get_if<RoleBodies>(&stmt.node)) {
      for (const RoleBodies::Role& role : bodies->roles) note(role.body);
    }
  }
  for (const Stmt& stmt : program.body) {
    if (!std::holds_alternative<RoleBodies>(stmt.node)) continue;
    walk_stmt(stmt, [&](const Stmt& inner) {
      const auto mark = [&](const ArrayRef& array, bool writes) {
        if (writes && owners.at(array.get()) == nullptr) varies(array);
      };
      for_each_access(inner,
                      [&](const Access& access, bool writes) { mark(access.array, writes); });
      for_each_register_effect(
          inner, [&](const RegisterEffect& effect) { mark(effect.slice.array, effect.writes); });
    });
  }
}

void UniformValues::define(const ir::Var& var, bool uniform, const Origin& origin) {
  if (values_.contains(&var)) return;
  if (uniform) {
    values_.insert(&var);
  } else {
    origins_[&var] = origin;
  }
}

void UniformValues::varies(const ArrayRef& array) {
  if (array->space == ArraySpace::registers) varying_.insert(array.get());
}

UniformValues::Origin UniformValues::own_result(const Stmt& stmt) {
  if (const auto* atomic = std::get_if<Atomic>(&stmt.node)) {
    return {{}, "each thread finds another value of '{}'", authors_name(*atomic->to.array)};
  }
  if (const auto* call = std::get_if<ExternCall>(&stmt.node)) {
    return {{}, "each thread calls '{}' for itself", call->function->name};
  }
  return {{}, "each thread computes its own value"};
}

bool UniformValues::is_one_element(const Access& access) const {
  const Expr& address = access.array->address;
  return (*this)(access.offset) && (!access.guard || (*this)(access.guard)) &&
         (!address || (*this)(address));
}

bool UniformValues::is_uniform(const Load& load, bool together) const {
  const Access& from = load.from;
  if (!is_one_element(from)) return false;
  switch (from.array->space) {
    case ArraySpace::global:
      return from.array->is_constant();
    case ArraySpace::registers:
      return !varying_.contains(from.array.get());
    case ArraySpace::shared:
      return over_ == Over::block && together && !ordered_by_author_.contains(from.array.get());
    case ArraySpace::cluster:
      return false;
  }
  return false;
}

UniformValues::Origin UniformValues::origin_of(const Load& load, bool together) const {
  const Array& array = *load.from.array;
  const auto because = [&](const char* reason) { return Origin{{}, reason, authors_name(array)}; };
  if (array.space == ArraySpace::registers) {
    Origin origin = because("'{}' is set by each thread for itself");
    const auto stored = stored_.find(&array);
    if (stored != stored_.end()) origin.value = stored->second;
    return origin;
  }
  if (!is_one_element(load.from)) return because("each thread reads another element of '{}'");
  if (array.space == ArraySpace::global)
    return because("'{}' is a tensor that the kernel may write");
  if (array.space == ArraySpace::shared && !together) {
    return because("'{}' is read where not all threads come");
  }
  return because("'{}' is ordered by the author's barriers alone");
}

bool UniformValues::differs(const VarRef& var) const {
  if (var->kind == ir::VarKind::thread) return true;
  if (var->kind == ir::VarKind::block && over_ == Over::grid) return true;
  if (varying_loops_.contains(var.get())) return true;
  return var->kind == ir::VarKind::value && !values_.contains(var.get());
}

bool UniformValues::operator()(const Expr& e) const {
  std::vector<VarRef> vars;
  ir::collect_vars(e, vars);
  return std::none_of(vars.begin(), vars.end(), [&](const VarRef& var) { return differs(var); });
}

std::string UniformValues::why_not(const Expr& e) const {
  return why_not(e, 0);
}

std::string UniformValues::why_not(const Expr& e, int registers) const {
  std::vector<VarRef> vars;
  ir::collect_vars(e, vars);
  for (const VarRef& var : vars) {
    if (!differs(var)) continue;
    if (var->kind == ir::VarKind::thread) return "'thread' is another in each thread";
    if (var->kind == ir::VarKind::block)
      return fmt::format("'{}' is another in each block", var->name);
    if (varying_loops_.contains(var.get())) {
      return fmt::format("the bounds of the loop over '{}' differ between threads", var->name);
    }
    const auto origin = origins_.find(var.get());
    if (origin == origins_.end()) return fmt::format("'{}' differs between threads", var->name);
    const Origin& found = origin->second;
    if (found.reason == nullptr) return why_not(found.value, registers);
    const std::string reason = fmt::format(fmt::runtime(found.reason), found.name);
    // The value of a register may come from the register itself.
    if (!found.value || registers == kMostRegisters) return reason;
    return reason + ": " + why_not(found.value, registers + 1);
  }
  return {};
}

}  // namespace tessera::codegen
