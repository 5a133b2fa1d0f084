#include "codegen/passes/insert_barriers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "codegen/analysis/footprint.h"
#include "codegen/analysis/pending_accesses.h"
#include "codegen/analysis/uniform.h"
#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kMaxPeriod = 12;  // more phases of a loop are not told apart
constexpr int64_t kMaxRounds = 16;  // a loop of no more is run to its end

using Accesses = std::vector<FootprintRef>;

struct Conflict {
  Group order = Group::thread;
  FootprintRef before, after;
};

/// What a statement changes in what is pending, beside its accesses; nothing if it does not.
std::optional<Order> pending_order(const Stmt& stmt) {
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
      case Order::Kind::converge:
      case Order::Kind::exchange:  // of registers
      case Order::Kind::arrive:    // no thread waits yet
      case Order::Kind::wait:      // for what is before the arrival, which keep_blocks places later
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

/// True if the statement, or one inside it, changes what is pending without an access.
bool contains_order(const Stmt& stmt) {
  return any_in(stmt, [](const Stmt& inner) { return pending_order(inner).has_value(); });
}

int reason_of(const Stmt& stmt) {
  if (const auto* barrier = std::get_if<Barrier>(&stmt.node)) return barrier->reason;
  if (const auto* barrier = std::get_if<WarpBarrier>(&stmt.node)) return barrier->reason;
  return 0;
}

class BarrierPlanner {
 public:
  BarrierPlanner(Program& program, const std::vector<VarRef>& uniform)
      : program_(program),
        footprints_(program),
        uniform_(program, UniformValues::Over::block, uniform) {}

  std::vector<std::string> run() {
    PendingAccesses state;
    process(program_.body, state);
    only_check_ = true;
    if (!inserted_.empty()) remove_unneeded(program_.body);
    return notes();
  }

 private:
  // ---- accesses

  /// All shared accesses of one statement, inner ones included, with the predicates above them.
  Accesses accesses_of(const Stmt& stmt) {
    Accesses result;
    collect(stmt, result);
    return each_once(std::move(result));
  }
  Accesses accesses_of(const Body& body) {
    Accesses result;
    for (const Stmt& stmt : body) collect(stmt, result);
    return each_once(std::move(result));
  }

  static Accesses each_once(Accesses result) {
    std::set<const Footprint*> seen;
    result.erase(
        std::remove_if(result.begin(), result.end(),
                       [&](const FootprintRef& f) { return !seen.insert(f.get()).second; }),
        result.end());
    return result;
  }

  void collect(const Stmt& stmt, Accesses& out) {
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      if (effect.access.array->space != ArraySpace::shared) return;
      out.push_back(footprints_.of(stmt, effect, loops_, predicates_));
    });
    by_structure(
        stmt,
        [&](const For& loop) {
          loops_.push_back({&loop});
          for (const Stmt& inner : loop.body) collect(inner, out);
          loops_.pop_back();
        },
        [&](const If& branch) {
          predicates_.push_back(branch.condition);
          for (const Stmt& inner : branch.then) collect(inner, out);
          predicates_.back() = negation(branch);
          for (const Stmt& inner : branch.otherwise) collect(inner, out);
          predicates_.pop_back();
        });
  }

  /// One object per condition, so that the footprints under it are found again.
  Expr negation(const If& branch) {
    Expr& known = negations_[branch.condition.get()];
    if (!known) known = ir::unary(ir::Op::logical_not, branch.condition);
    return known;
  }

  Group order_between(const FootprintRef& before, const FootprintRef& after) {
    const bool meet = before->first < after->end() && after->first < before->end();
    if (before->array == after->array && !meet) return Group::thread;
    const auto [entry, is_new] = orders_.try_emplace({before.get(), after.get()}, Group::thread);
    if (is_new) entry->second = order_needed(*before, *after);
    return entry->second;
  }

  /// The strongest order that is missing between what is pending and what comes next.
  Conflict conflict_with(const std::vector<PendingAccess>& pending, const Accesses& next) {
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

  /// True if nothing inside the statement needs or makes an order.
  bool is_quiet(const Stmt& stmt, const Accesses& here) {
    bool compound = false;
    for_each_body(stmt, [&](const Body&) { compound = true; });
    if (!compound) return true;
    if (contains_order(stmt)) return false;
    std::vector<PendingAccess> own;
    for (const FootprintRef& access : here) own.push_back({access, false});
    return conflict_with(own, here).order == Group::thread;
  }

  // ---- uniformity

  /// The same for all threads of a warp.
  bool same_in_warp(const Expr& e) const {
    if (uniform_(e)) return true;
    if (const auto values = footprints_.values().evaluate(e)) {
      for (size_t t = 0; t < values->lanes.size(); ++t) {
        if (values->lanes[t] != values->lanes[t / 32 * 32]) return false;
      }
      return true;
    }
    if (e->op == ir::Op::var) {
      if (const Expr* value = footprints_.values().definition(*e->var)) return same_in_warp(*value);
      for (const Rounds& open : loops_) {
        if (open.loop->var == e->var) return same_in_warp(*open.loop);
      }
      return false;
    }
    return std::all_of(e->args.begin(), e->args.end(),
                       [&](const Expr& arg) { return same_in_warp(arg); });
  }
  bool same_in_warp(const For& loop) const {
    return same_in_warp(loop.begin) && same_in_warp(loop.end) && same_in_warp(loop.step);
  }

  /// A loop or a condition around the current statement that parts the threads of the block.
  struct Parting {
    const char* what;
    Expr value;
    SourceLoc loc;
    bool in_warp;  // those of a warp as well
  };
  /// The innermost one that keeps such a barrier from all its threads; null if there is none.
  const Parting* parting_of(Group order) const {
    const auto at = std::find_if(parted_.rbegin(), parted_.rend(), [&](const Parting& parting) {
      return order == Group::block || parting.in_warp;
    });
    return at == parted_.rend() ? nullptr : &*at;
  }

  [[noreturn]] void divergent(const Conflict& conflict, const Parting& parting) const {
    throw Error(
        {.kind = ErrorKind::program,
         .op = program_.name,
         .what = fmt::format(
             "shared '{}' needs a barrier under a condition that differs between threads",
             authors_name(*conflict.after->array)),
         .expected = "conditions and loop bounds that are the same for the whole block",
         .got = fmt::format("the {} {} at {}: {}", parting.what, ir::to_string(parting.value),
                            to_string(parting.loc), uniform_.why_not(parting.value)),
         .hint =
             "move the two accesses out of the condition, or make it the same for the whole block",
         .code = "SYNC_DIVERGENT",
         .loc = conflict.after->loc,
         .related = conflict.before->loc});
  }

  // ---- placement

  Stmt barrier(const Conflict& conflict) {
    if (const Parting* parting = parting_of(conflict.order)) divergent(conflict, *parting);
    inserted_.push_back(conflict);
    const auto reason = static_cast<int>(inserted_.size());
    Stmt stmt;
    if (conflict.order == Group::block) {
      stmt.node = Barrier{reason};
    } else {
      stmt.node = WarpBarrier{reason};
    }
    stmt.loc = conflict.after->loc;
    return stmt;
  }

  /// Brings `state` over `body` and puts barriers where they are needed. When only checking: false
  /// at the first place where one is missing.
  bool process(Body& body, PendingAccesses& state) {
    for (size_t i = 0; i < body.size(); ++i) {
      if (&body == left_out_of_ && i == left_out_) continue;
      if (const std::optional<Order> order = pending_order(body[i])) {
        take_order(*order, state);
      } else {
        const Accesses here = accesses_of(body[i]);
        if (here.empty() && !contains_order(body[i])) continue;
        const bool quiet = is_quiet(body[i], here);
        // What orders its own accesses is looked into before it is judged, once its barriers stand.
        if (quiet || !only_check_) {
          const Conflict conflict = conflict_with(state.all(), here);
          if (conflict.order != Group::thread) {
            if (only_check_) return false;
            body.insert(body.begin() + static_cast<std::ptrdiff_t>(i), barrier(conflict));
            --i;  // the barrier takes effect first
            continue;
          }
        }
        if (quiet) {
          for (const FootprintRef& access : here) state.add(access);
        } else if (!enter(body[i], state)) {
          return false;
        }
      }
    }
    return true;
  }

  static void take_order(const Order& order, PendingAccesses& state) {
    if (order.kind == Order::Kind::commit) {
      state.commit();
    } else if (order.kind == Order::Kind::await) {
      state.wait(order.pending);
    } else if (order.group == Group::warp) {
      state.warp_barrier();
    } else {
      state.block_barrier();
    }
  }

  bool enter(Stmt& stmt, PendingAccesses& state) {
    bool good = true;
    by_structure(
        stmt, [&](For& loop) { good = enter_loop(loop, stmt.loc, state); },
        [&](If& branch) { good = enter_branch(branch, stmt.loc, state); });
    return good;
  }

  bool enter_loop(For& loop, SourceLoc loc, PendingAccesses& state) {
    const bool differs = !uniform_(loop.begin) || !uniform_(loop.end) || !uniform_(loop.step);
    const bool differs_in_warp = differs && !same_in_warp(loop);
    const Expr& bound = !uniform_(loop.end)     ? loop.end
                        : !uniform_(loop.begin) ? loop.begin
                                                : loop.step;
    if (differs) parted_.push_back({"loop bound", bound, loc, differs_in_warp});
    const bool good = run_rounds(loop, state);
    if (differs) parted_.pop_back();
    return good;
  }

  bool enter_branch(If& branch, SourceLoc loc, PendingAccesses& state) {
    const bool differs = !uniform_(branch.condition);
    const bool differs_in_warp = differs && !same_in_warp(branch.condition);
    if (differs) parted_.push_back({"condition", branch.condition, loc, differs_in_warp});
    PendingAccesses then = state;
    predicates_.push_back(branch.condition);
    const Accesses of_then = differs ? accesses_of(branch.then) : Accesses();
    bool good = process(branch.then, then);
    predicates_.back() = negation(branch);
    if (differs) check_arms(of_then, accesses_of(branch.otherwise), parted_.back());
    good = good && process(branch.otherwise, state);
    predicates_.pop_back();
    if (differs) parted_.pop_back();
    state.merge(then);
    return good;
  }

  /// Nothing orders the threads in one arm of a branch and those in the other.
  void check_arms(const Accesses& then, const Accesses& otherwise, const Parting& parting) {
    for (const FootprintRef& before : then) {
      for (const FootprintRef& after : otherwise) {
        const Group order = order_between(before, after);
        const bool race = order == Group::block || (order == Group::warp && parting.in_warp);
        if (race && !before->manual_sync && !after->manual_sync) {
          divergent({order, before, after}, parting);
        }
      }
    }
  }

  // ---- rounds of a loop

  /// The index repeats in its effects: every phase in turn, twice, sees what all rounds before it
  /// have left. Short loops run to their end, so that their asynchronous groups are counted.
  bool run_rounds(For& loop, PendingAccesses& state) {
    const bool steps = ir::is_constant(loop.step);
    const int64_t step = steps ? loop.step->integer : 1;
    // Threads that begin at different indices are in different phases of one round.
    const int64_t period = steps && uniform_(loop.begin) ? period_of_loop(loop) : 1;
    const bool starts = ir::is_constant(loop.begin);
    const int64_t enough = 2 * period + max_under_way(loop.body);
    const bool counted = starts && steps && ir::is_constant(loop.end);
    const int64_t count =
        counted ? std::max<int64_t>(0, (loop.end->integer - loop.begin->integer + step - 1) / step)
                : -1;
    const bool all_rounds = counted && count <= std::max(enough, kMaxRounds);
    const int64_t rounds = all_rounds ? count : enough;

    const PendingAccesses before = state;
    PendingAccesses after = before;
    bool any_round = !counted || count == 0;  // false: `after` is not a way out of the loop yet
    bool good = true;
    for (int64_t start = 0; good && start < (starts ? 1 : period); ++start) {
      PendingAccesses now = before;
      const int64_t first = starts ? loop.begin->integer : start;
      for (int64_t round = 0; good && round < rounds; ++round) {
        const int64_t index = first + round * step;
        loops_.push_back({&loop, period, (index % period + period) % period});
        good = process(loop.body, now);
        loops_.pop_back();
        // Two states of the same phase: a merge of different numbers of asynchronous groups shows that
        // they have not settled.
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

  /// The period in which shared accesses of the body and the conditions on them repeat.
  static int64_t period_of_loop(const For& loop) {
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
      if (period > kMaxPeriod) period = kMaxPeriod + 1;
    });
    return period <= kMaxPeriod ? period : 1;
  }

  static int64_t max_under_way(const Body& body) {
    int64_t most = 0;
    walk(body, [&](const Stmt& stmt) { most = std::max<int64_t>(most, most_in_flight(stmt)); });
    return std::min(most, kMaxPeriod);
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
      const bool of_block = why.order == Group::block;
      result.push_back(fmt::format("{}: {}: '{}' is {} here and {} at {} by another thread{}",
                                   to_string(why.after->loc), of_block ? "barrier" : "warp barrier",
                                   why.after->array->name, why.after->writes ? "written" : "read",
                                   why.before->writes ? "written" : "read",
                                   to_string(why.before->loc), of_block ? "" : " of the warp"));
    });
    return result;
  }

  Program& program_;
  Footprints footprints_;
  const UniformValues uniform_;
  std::vector<Rounds> loops_;  // around the current statement
  std::vector<Expr> predicates_;
  std::map<const ir::Node*, Expr> negations_;
  std::map<std::pair<const Footprint*, const Footprint*>, Group> orders_;
  std::vector<Conflict> inserted_;
  std::vector<Parting> parted_;  // outer before inner
  bool only_check_ = false;
  const Body* left_out_of_ = nullptr;  // the barrier that a check does without
  size_t left_out_ = 0;
};

}  // namespace

std::vector<std::string> insert_barriers(Program& program, const std::vector<VarRef>& uniform) {
  return BarrierPlanner(program, uniform).run();
}

}  // namespace tessera::codegen
