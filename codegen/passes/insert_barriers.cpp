#include "codegen/passes/insert_barriers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "codegen/analysis/footprint.h"
#include "codegen/analysis/uniform.h"
#include "codegen/passes/pending_accesses.h"
#include "codegen/passes/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kMaxPeriod = 12;  // more phases of a loop are not told apart
constexpr int64_t kMaxRounds = 16;  // a loop of no more is run to its end

using Accesses = std::vector<FootprintRef>;

struct Conflict {
  Order order = Order::none;
  FootprintRef before, after;
};

bool is_block_barrier(const Stmt& stmt) {
  const auto* call = std::get_if<ExternCall>(&stmt.node);
  return std::holds_alternative<Barrier>(stmt.node) ||
         (call != nullptr && call->function->synchronises);
}

/// True if the statement, or one inside it, changes what is pending without an access.
bool contains_order(const Stmt& stmt) {
  if (const auto* loop = std::get_if<For>(&stmt.node)) {
    return std::any_of(loop->body.begin(), loop->body.end(), contains_order);
  }
  if (const auto* branch = std::get_if<If>(&stmt.node)) {
    return std::any_of(branch->then.begin(), branch->then.end(), contains_order) ||
           std::any_of(branch->otherwise.begin(), branch->otherwise.end(), contains_order);
  }
  return is_block_barrier(stmt) || std::holds_alternative<WarpBarrier>(stmt.node) ||
         std::holds_alternative<AsyncWait>(stmt.node) ||
         std::holds_alternative<AsyncCommit>(stmt.node);
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
    for_each_access(stmt, [&](const Access& access, bool writes) {
      if (access.array->space != ArraySpace::shared) return;
      out.push_back(footprints_.of(stmt, access, writes, loops_, predicates_));
    });
    if (const auto* loop = std::get_if<For>(&stmt.node)) {
      loops_.push_back({loop});
      for (const Stmt& inner : loop->body) collect(inner, out);
      loops_.pop_back();
    } else if (const auto* branch = std::get_if<If>(&stmt.node)) {
      predicates_.push_back(branch->condition);
      for (const Stmt& inner : branch->then) collect(inner, out);
      predicates_.back() = negation(*branch);
      for (const Stmt& inner : branch->otherwise) collect(inner, out);
      predicates_.pop_back();
    }
  }

  /// One object per condition, so that the footprints under it are found again.
  Expr negation(const If& branch) {
    Expr& known = negations_[branch.condition.get()];
    if (!known) known = ir::unary(ir::Op::logical_not, branch.condition);
    return known;
  }

  Order order_between(const FootprintRef& before, const FootprintRef& after) {
    const bool meet = before->first < after->end() && after->first < before->end();
    if (before->array == after->array && !meet) return Order::none;
    const auto [entry, is_new] = orders_.try_emplace({before.get(), after.get()}, Order::none);
    if (is_new) entry->second = order_needed(*before, *after);
    return entry->second;
  }

  /// The strongest order that is missing between what is pending and what comes next.
  Conflict conflict_with(const std::vector<PendingAccess>& pending, const Accesses& next) {
    Conflict result;
    for (const FootprintRef& after : next) {
      if (after->manual_sync) continue;
      for (const PendingAccess& before : pending) {
        Order order = order_between(before.access, after);
        if (order == Order::warp && before.after_warp_barrier) order = Order::none;
        if (order <= result.order) continue;
        result = {order, before.access, after};
        if (order == Order::block) return result;
      }
    }
    return result;
  }

  /// True if nothing inside the statement needs or makes an order.
  bool is_quiet(const Stmt& stmt, const Accesses& here) {
    const bool compound =
        std::holds_alternative<For>(stmt.node) || std::holds_alternative<If>(stmt.node);
    if (!compound) return true;
    if (contains_order(stmt)) return false;
    std::vector<PendingAccess> own;
    for (const FootprintRef& access : here) own.push_back({access, false});
    return conflict_with(own, here).order == Order::none;
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
  const Parting* parting_of(Order order) const {
    const auto at = std::find_if(parted_.rbegin(), parted_.rend(), [&](const Parting& parting) {
      return order == Order::block || parting.in_warp;
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
    if (conflict.order == Order::block) {
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
      if (is_block_barrier(body[i])) {
        state.block_barrier();
      } else if (std::holds_alternative<WarpBarrier>(body[i].node)) {
        state.warp_barrier();
      } else if (const auto* wait = std::get_if<AsyncWait>(&body[i].node)) {
        state.wait(wait->pending);
      } else if (std::holds_alternative<AsyncCommit>(body[i].node)) {
        state.commit();
      } else {
        const Accesses here = accesses_of(body[i]);
        if (here.empty() && !contains_order(body[i])) continue;
        const bool quiet = is_quiet(body[i], here);
        // What orders its own accesses is looked into before it is judged, once its barriers stand.
        if (quiet || !only_check_) {
          const Conflict conflict = conflict_with(state.all(), here);
          if (conflict.order != Order::none) {
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

  bool enter(Stmt& stmt, PendingAccesses& state) {
    if (auto* loop = std::get_if<For>(&stmt.node)) {
      const bool differs = !uniform_(loop->begin) || !uniform_(loop->end) || !uniform_(loop->step);
      const bool differs_in_warp = differs && !same_in_warp(*loop);
      const Expr& bound = !uniform_(loop->end)     ? loop->end
                          : !uniform_(loop->begin) ? loop->begin
                                                   : loop->step;
      if (differs) parted_.push_back({"loop bound", bound, stmt.loc, differs_in_warp});
      const bool good = run_rounds(*loop, state);
      if (differs) parted_.pop_back();
      return good;
    }
    auto& branch = std::get<If>(stmt.node);
    const bool differs = !uniform_(branch.condition);
    const bool differs_in_warp = differs && !same_in_warp(branch.condition);
    if (differs) parted_.push_back({"condition", branch.condition, stmt.loc, differs_in_warp});
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
        const Order order = order_between(before, after);
        const bool race = order == Order::block || (order == Order::warp && parting.in_warp);
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
      if (const auto* let = std::get_if<Let>(&stmt.node)) consider(let->value);
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
    walk(body, [&](const Stmt& stmt) {
      const auto* wait = std::get_if<AsyncWait>(&stmt.node);
      if (wait != nullptr) most = std::max<int64_t>(most, wait->pending);
    });
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
      } else if (auto* loop = std::get_if<For>(&body[i].node)) {
        remove_unneeded(loop->body);
      } else if (auto* branch = std::get_if<If>(&body[i].node)) {
        remove_unneeded(branch->then);
        remove_unneeded(branch->otherwise);
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
      const bool of_block = why.order == Order::block;
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
  std::map<std::pair<const Footprint*, const Footprint*>, Order> orders_;
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
