#include "codegen/analysis/shared_conflicts.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

Accesses each_once(Accesses result) {
  std::set<const Footprint*> seen;
  result.erase(std::remove_if(result.begin(), result.end(),
                              [&](const FootprintRef& f) { return !seen.insert(f.get()).second; }),
               result.end());
  return result;
}

}  // namespace

Accesses SharedConflicts::accesses_of(const Stmt& stmt) {
  Accesses result;
  collect(stmt, result);
  return each_once(std::move(result));
}

Accesses SharedConflicts::accesses_of(const Body& body) {
  Accesses result;
  collect(body, result);
  return each_once(std::move(result));
}

void SharedConflicts::collect(const Body& body, Accesses& out) {
  for (const Stmt& stmt : body) collect(stmt, out);
}

void SharedConflicts::collect(const Stmt& stmt, Accesses& out) {
  for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
    if (effect.access.array->space != ArraySpace::shared) return;
    out.push_back(footprints_.of(stmt, effect, group_, loops_, predicates_));
  });
  by_structure(
      stmt,
      [&](const For& loop) {
        enter_loop({&loop});
        collect(loop.body, out);
        leave_loop();
      },
      [&](const If& branch) {
        enter_then(branch);
        collect(branch.then, out);
        enter_otherwise(branch);
        collect(branch.otherwise, out);
        leave_branch();
      },
      [&](const RoleBodies& bodies) {
        for (const RoleBodies::Role& role : bodies.roles) {
          enter_role(role.threads);
          collect(role.body, out);
        }
        leave_role();
      });
}

Expr SharedConflicts::negation(const If& branch) {
  Expr& known = negations_[branch.condition.get()];
  if (!known) known = ir::unary(ir::Op::logical_not, branch.condition);
  return known;
}

Group SharedConflicts::order_between(const FootprintRef& before, const FootprintRef& after) {
  const bool meet = before->first < after->end() && after->first < before->end();
  if (before->array == after->array && !meet) return Group::thread;
  const auto [entry, is_new] =
      orders_.try_emplace(uint64_t{before->number} << 32 | after->number, Group::thread);
  if (is_new) entry->second = order_needed(*before, *after);
  return entry->second;
}

Conflict SharedConflicts::conflict_with(const std::vector<PendingAccess>& pending,
                                        const Accesses& next) {
  Conflict result;
  for (const FootprintRef& after : next) {
    if (after->manual_sync) continue;
    for (const PendingAccess& before : pending) {
      Group order = order_between(before.access, after);
      if (order == Group::warp && before.after_warp_barrier) order = Group::thread;
      if (order <= result.order) continue;
      result = {order, before.access, after};
      if (order == Group::block) return result;
    }
  }
  return result;
}

bool SharedConflicts::is_same_in_warps(const Expr& e, const UniformValues& uniform) const {
  if (uniform(e)) return true;
  if (const auto values = footprints_.values().evaluate(e)) {
    for (int thread = group_.first; thread < group_.end(); ++thread) {
      const int first = thread / kThreadsPerWarp * kThreadsPerWarp;
      if (values->at(static_cast<size_t>(thread)) != values->at(static_cast<size_t>(first))) {
        return false;
      }
    }
    return true;
  }
  if (e->op == ir::Op::var) {
    if (const Expr* value = footprints_.values().definition(*e->var)) {
      return is_same_in_warps(*value, uniform);
    }
    for (const Rounds& open : loops_) {
      if (open.loop->var == e->var) return is_same_in_warps(*open.loop, uniform);
    }
    return false;
  }
  return std::all_of(e->args.begin(), e->args.end(),
                     [&](const Expr& arg) { return is_same_in_warps(arg, uniform); });
}

bool SharedConflicts::is_same_in_warps(const For& loop, const UniformValues& uniform) const {
  return is_same_in_warps(loop.begin, uniform) && is_same_in_warps(loop.end, uniform) &&
         is_same_in_warps(loop.step, uniform);
}

int64_t period_of_accesses(const For& loop, int64_t most) {
  int64_t period = 1;
  const auto consider = [&](const Expr& e) {
    if (e) period = std::lcm(period, period_of(e, *loop.var));
  };
  walk(loop.body, [&](const Stmt& stmt) {
    for_each_binding(stmt, [&](const VarRef&, const Expr* value) {
      if (value != nullptr) consider(*value);
    });
    if (const auto* branch = std::get_if<If>(&stmt.node)) consider(branch->condition);
    for_each_access(stmt, [&](const Access& access, bool) {
      if (access.array->space != ArraySpace::shared) return;
      consider(access.offset);
      consider(access.guard);
    });
    if (period > most) period = most + 1;
  });
  return period <= most ? period : 1;
}

int64_t max_in_flight(const Body& body, int64_t most) {
  int64_t groups = 0;
  walk(body, [&](const Stmt& stmt) {
    for (const auto work : {Work::copies, Work::stores}) {
      groups = std::max<int64_t>(groups, most_in_flight(stmt, work));
    }
  });
  return std::min(groups, most);
}

}  // namespace tessera::codegen
