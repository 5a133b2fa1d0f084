#include "codegen/passes/insert_barriers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "codegen/analysis/pending_accesses.h"
#include "codegen/analysis/round_count.h"
#include "codegen/analysis/shared_conflicts.h"
#include "codegen/analysis/uniform.h"
#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kMaxPhases = 12;  // phases of a loop that are analysed separately
constexpr int64_t kMaxRounds = 16;  // loops up to this length are followed to their end

/// How a statement changes the pending state of a group's threads, apart from its accesses; nothing
/// if it does not.
std::optional<Order> pending_order(const Stmt& stmt, const ThreadGroup& group) {
  const auto* barrier = std::get_if<Barrier>(&stmt.node);
  if (barrier != nullptr && barrier->is_named() && barrier->threads < group.count) {
    return std::nullopt;
  }
  std::optional<Order> result;
  any_order(stmt, [&](const Order& order) {
    switch (order.kind) {
      case Order::Kind::barrier:
        if (order.group != Group::thread) result = order;
        break;
      case Order::Kind::commit:
      case Order::Kind::await:
        result = order;
        break;
      case Order::Kind::wait:
        // A cluster wait orders what precedes its arrival, which insert_cluster_exit_barrier places later.
        if (order.group == Group::thread) result = order;
        break;
      case Order::Kind::converge:
      case Order::Kind::exchange:  // of registers
      case Order::Kind::arrive:    // no thread waits yet
      case Order::Kind::fence:
      case Order::Kind::proxy_fence:
      case Order::Kind::previous_kernel:
      case Order::Kind::next_kernel:
      case Order::Kind::leave:
        break;
    }
    return false;
  });
  return result;
}

/// True if the statement, or one inside it, changes the pending state without an access.
bool contains_order(const Stmt& stmt, const ThreadGroup& group) {
  return any_in(stmt, [&](const Stmt& inner) { return pending_order(inner, group).has_value(); });
}

int reason_of(const Stmt& stmt) {
  const auto* barrier = std::get_if<Barrier>(&stmt.node);
  return barrier == nullptr ? 0 : barrier->reason;
}

class BarrierPlanner {
 public:
  BarrierPlanner(Program& program, const std::vector<VarRef>& uniform)
      : program_(program),
        shared_(program),
        uniform_(program, UniformValues::Over::block, uniform) {}

  std::vector<std::string> run() {
    PendingAccesses state;
    process(program_.body, state);
    only_check_ = true;
    if (!inserted_.empty()) remove_unneeded(program_.body);
    return notes();
  }

 private:
  /// True if nothing inside the statement needs or makes an order.
  bool is_quiet(const Stmt& stmt, const Accesses& here) {
    bool compound = false;
    for_each_body(stmt, [&](const Body&) { compound = true; });
    if (!compound) return true;
    if (contains_order(stmt, shared_.group())) return false;
    std::vector<PendingAccess> own;
    for (const FootprintRef& access : here) own.push_back({access, false});
    return shared_.conflict_with(own, here).order == Group::thread;
  }

  /// An enclosing loop or condition in which the threads of the group diverge.
  struct Divergence {
    const char* what;
    Expr value;
    SourceLoc loc;
    bool in_warp;  // also within a warp
  };
  /// The innermost divergence that prevents such a barrier; null if there is none.
  const Divergence* divergence_at(Group order) const {
    const auto at = std::find_if(
        divergences_.rbegin(), divergences_.rend(),
        [&](const Divergence& divergence) { return order == Group::block || divergence.in_warp; });
    return at == divergences_.rend() ? nullptr : &*at;
  }

  [[noreturn]] void divergent(const Conflict& conflict, const Divergence& divergence) const {
    const std::string all =
        role_ == nullptr ? "the whole block" : fmt::format("the whole role '{}'", role_->name);
    throw Error(
        {.kind = ErrorKind::program,
         .op = program_.name,
         .what = fmt::format(
             "shared '{}' needs a barrier under a condition that differs between threads",
             authors_name(*conflict.after->array)),
         .expected = fmt::format("conditions and loop bounds that are the same for {}", all),
         .got = fmt::format("the {} {} at {}: {}", divergence.what, ir::to_string(divergence.value),
                            to_string(divergence.loc), uniform_.why_not(divergence.value)),
         .hint = fmt::format(
             "move the two accesses out of the condition, or make it the same for {}", all),
         .code = "SYNC_DIVERGENT",
         .loc = conflict.after->loc,
         .related = conflict.before->loc});
  }

  // ---- placement

  Stmt barrier(const Conflict& conflict) {
    if (const Divergence* divergence = divergence_at(conflict.order))
      divergent(conflict, *divergence);
    inserted_.push_back(conflict);
    const auto reason = static_cast<int>(inserted_.size());
    const bool is_one_warp = role_ != nullptr && role_->threads.count <= kThreadsPerWarp;
    Barrier result{.scope = BarrierScope::block, .reason = reason};
    if (conflict.order != Group::block || is_one_warp) {
      result.scope = BarrierScope::warp;
    } else if (role_ != nullptr) {
      result = {BarrierScope::named, reason, id_of(*role_, conflict), role_->threads.count};
    }
    return {result, conflict.after->loc};
  }

  /// The named barrier of a role: the first free id.
  int id_of(const RoleBodies::Role& role, const Conflict& conflict) {
    int& id = ids_[&role];
    if (id != 0) return id;
    std::set<int> used;
    walk(program_.body, [&](const Stmt& stmt) {
      const auto* other = std::get_if<Barrier>(&stmt.node);
      if (other != nullptr && other->is_named()) used.insert(other->id);
    });
    for (const auto& [other, taken] : ids_) used.insert(taken);
    for (id = 1; used.contains(id);) ++id;
    if (id <= kMaxNamedBarriers) return id;
    throw Error({.kind = ErrorKind::program,
                 .op = program_.name,
                 .what = fmt::format("role '{}' needs one more named barrier", role.name),
                 .expected = fmt::format("at most {} of a block", kMaxNamedBarriers),
                 .got = fmt::format("{}", id),
                 .code = "NAMED_BARRIERS",
                 .loc = conflict.after->loc,
                 .related = conflict.before->loc});
  }

  /// Propagates `state` through `body` and inserts the needed barriers. When only checking, returns
  /// false at the first missing barrier.
  bool process(Body& body, PendingAccesses& state) {
    for (size_t i = 0; i < body.size(); ++i) {
      if (&body == left_out_of_ && i == left_out_) continue;
      const auto* const wait = std::get_if<MbarrierWait>(&body[i].node);
      if (wait != nullptr && wait->at.array->ring >= 0) {
        state.wait_at_ring(wait->at.array->ring);
        continue;
      }
      const std::optional<Order> order = pending_order(body[i], shared_.group());
      const Accesses here = shared_.accesses_of(body[i]);
      if (order && here.empty()) {
        take_order(*order, state);
      } else {
        if (here.empty() && !contains_order(body[i], shared_.group())) continue;
        const bool quiet = is_quiet(body[i], here);
        // A statement with inner orders is judged after the barriers inside it are inserted.
        if (quiet || !only_check_) {
          const Conflict conflict = shared_.conflict_with(state.all(), here);
          if (conflict.order != Group::thread) {
            if (only_check_) return false;
            body.insert(body.begin() + static_cast<std::ptrdiff_t>(i), barrier(conflict));
            --i;  // process the barrier first
            continue;
          }
        }
        if (quiet) {
          for (const FootprintRef& access : here) state.add(access);
          if (order) take_order(*order, state);
        } else if (!enter(body[i], state)) {
          return false;
        }
      }
    }
    return true;
  }

  void take_order(const Order& order, PendingAccesses& state) const {
    state.take(order, role_ != nullptr && role_->threads.count <= kThreadsPerWarp);
  }

  bool enter(Stmt& stmt, PendingAccesses& state) {
    bool good = true;
    by_structure(
        stmt, [&](For& loop) { good = enter_loop(loop, stmt.loc, state); },
        [&](If& branch) { good = enter_branch(branch, stmt.loc, state); },
        [&](RoleBodies& bodies) { good = enter_roles(bodies, state); });
    return good;
  }

  bool enter_loop(For& loop, SourceLoc loc, PendingAccesses& state) {
    const size_t outer = divergences_.size();
    for (const Expr& bound : {loop.end, loop.begin, loop.step}) {
      if (uniform_(bound) || divergences_.size() > outer) continue;
      divergences_.push_back({"loop bound", bound, loc, !shared_.is_same_in_warps(loop, uniform_)});
    }
    if (const Break* leave = break_of(loop); leave && !uniform_(leave->condition)) {
      divergences_.push_back(
          {"condition of the break", leave->condition, loop.body.back().loc, true});
    }
    const bool good = run_rounds(loop, state);
    divergences_.erase(divergences_.begin() + static_cast<std::ptrdiff_t>(outer),
                       divergences_.end());
    return good;
  }

  bool enter_branch(If& branch, SourceLoc loc, PendingAccesses& state) {
    const bool differs = !uniform_(branch.condition);
    const bool differs_in_warp = differs && !shared_.is_same_in_warps(branch.condition, uniform_);
    if (differs) divergences_.push_back({"condition", branch.condition, loc, differs_in_warp});
    PendingAccesses then = state;
    shared_.enter_then(branch);
    const Accesses of_then = differs ? shared_.accesses_of(branch.then) : Accesses();
    bool good = process(branch.then, then);
    shared_.enter_otherwise(branch);
    if (differs) check_arms(of_then, shared_.accesses_of(branch.otherwise), divergences_.back());
    good = good && process(branch.otherwise, state);
    shared_.leave_branch();
    if (differs) divergences_.pop_back();
    state.merge(then);
    return good;
  }

  /// Every role starts with the pending state and orders its own accesses. The author orders accesses
  /// of different roles.
  bool enter_roles(RoleBodies& bodies, PendingAccesses& state) {
    const PendingAccesses before = state;
    bool good = true;
    for (RoleBodies::Role& role : bodies.roles) {
      PendingAccesses now = before;
      role_ = &role;
      shared_.enter_role(role.threads);
      good = good && process(role.body, now);
      shared_.leave_role();
      role_ = nullptr;
      state.merge(now);
    }
    return good;
  }

  /// Nothing orders threads of different arms of a branch.
  void check_arms(const Accesses& then, const Accesses& otherwise, const Divergence& divergence) {
    for (const FootprintRef& before : then) {
      for (const FootprintRef& after : otherwise) {
        const Group order = shared_.order_between(before, after);
        const bool race = order == Group::block || (order == Group::warp && divergence.in_warp);
        if (race && !before->manual_sync && !after->manual_sync) {
          divergent({order, before, after}, divergence);
        }
      }
    }
  }

  /// Runs every phase of a repeating loop twice, so that each sees the state of all earlier rounds.
  /// Short loops run to their end, so that their asynchronous groups are counted.
  bool run_rounds(For& loop, PendingAccesses& state) {
    const bool steps = ir::is_constant(loop.step);
    const int64_t step = steps ? loop.step->integer : 1;
    // Threads that begin at different indices are in different phases in one round.
    const int64_t period = steps && uniform_(loop.begin) ? period_of_accesses(loop, kMaxPhases) : 1;
    const bool starts = ir::is_constant(loop.begin);
    const int64_t enough = 2 * period + max_in_flight(loop.body, kMaxPhases);
    const bool counted = starts && steps && ir::is_constant(loop.end) && break_of(loop) == nullptr;
    const int64_t count = counted ? round_count(loop.begin->integer, loop.end->integer, step) : -1;
    const bool all_rounds = counted && count <= std::max(enough, kMaxRounds);
    const int64_t rounds = all_rounds ? count : enough;

    const PendingAccesses before = state;
    PendingAccesses after = before;
    bool any_round = !counted || count == 0;  // false: `after` cannot be the loop's exit state yet
    bool good = true;
    for (int64_t start = 0; good && start < (starts ? 1 : period); ++start) {
      PendingAccesses now = before;
      const int64_t first = starts ? loop.begin->integer : start;
      for (int64_t round = 0; good && round < rounds; ++round) {
        const int64_t index = first + round * step;
        shared_.enter_loop({&loop, period, (index % period + period) % period});
        good = process(loop.body, now);
        shared_.leave_loop();
        // Two states of the same phase: merging different numbers of asynchronous groups shows that
        // they have not converged.
        const bool may_leave =
            all_rounds ? round + 1 == count : !counted || round >= rounds - period - 1;
        if (!may_leave) continue;
        if (any_round) {
          after.merge(now);
        } else {
          after = now;
        }
        any_round = true;
      }
    }
    state = std::move(after);
    return good;
  }

  // ---- fewer barriers

  void remove_unneeded(Body& body) {
    for (size_t i = 0; i < body.size();) {
      if (reason_of(body[i]) > 0) {
        left_out_of_ = &body;
        left_out_ = i;
        PendingAccesses state;
        const bool unneeded = process(program_.body, state);
        left_out_of_ = nullptr;
        if (unneeded) {
          body.erase(body.begin() + static_cast<std::ptrdiff_t>(i));
          continue;
        }
      } else {
        for_each_body(body[i], [&](Body& inner) { remove_unneeded(inner); });
      }
      ++i;
    }
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> result;
    walk(program_.body, [&](const Stmt& stmt) {
      const int reason = reason_of(stmt);
      if (reason == 0) return;
      const Conflict& why = inserted_[static_cast<size_t>(reason - 1)];
      const BarrierScope scope = std::get<Barrier>(stmt.node).scope;
      const bool of_warp = scope == BarrierScope::warp;
      result.push_back(fmt::format("{}: {}: '{}' is {} here and {} at {} by another thread{}",
                                   to_string(why.after->loc), name(scope), why.after->array->name,
                                   why.after->writes ? "written" : "read",
                                   why.before->writes ? "written" : "read",
                                   to_string(why.before->loc), of_warp ? " of the warp" : ""));
    });
    return result;
  }

  Program& program_;
  SharedConflicts shared_;
  const UniformValues uniform_;
  const RoleBodies::Role* role_ = nullptr;      // of the current statement
  std::map<const RoleBodies::Role*, int> ids_;  // of their named barriers
  std::vector<Conflict> inserted_;
  std::vector<Divergence> divergences_;  // outer before inner
  bool only_check_ = false;
  const Body* left_out_of_ = nullptr;  // the barrier that a check leaves out
  size_t left_out_ = 0;
};

}  // namespace

std::vector<std::string> insert_barriers(Program& program, const std::vector<VarRef>& uniform) {
  return BarrierPlanner(program, uniform).run();
}

}  // namespace tessera::codegen
