#include "codegen/passes/insert_barriers.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "codegen/analysis/evaluate.h"
#include "codegen/passes/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

constexpr int kNobody = -1;
constexpr int kSeveral = -2;
constexpr int64_t kMaxPoints = int64_t{1} << 18;

/// Which thread (and which warp) touches each element.
struct Footprint {
  const Array* array = nullptr;
  bool writes = false;
  bool atomic = false;
  bool in_background = false;     // lands at a wait
  bool manual_sync = false;       // the author's barriers order it
  bool by_warp = false;           // what one lane names, the whole warp receives
  std::vector<int> thread, warp;  // by element: kNobody, kSeveral or the number
  SourceLoc loc;
  bool after_warp_barrier = false;
  int id = 0;  // of the collection: copies keep it
};

void touch(int& owner, int who) {
  if (owner == kNobody) {
    owner = who;
  } else if (owner != who) {
    owner = kSeveral;
  }
}

class BarrierPlanner {
 public:
  explicit BarrierPlanner(Program& program) : program_(program), environment_(program.num_vars) {}

  std::vector<std::string> run() {
    std::vector<Footprint> pending;
    process(program_.body, pending, true);
    return std::move(notes_);
  }

 private:
  // ---- footprints

  /// All shared accesses of one statement, inner ones included, with the predicates above them.
  void collect(const Stmt& stmt, std::vector<Footprint>& out) {
    for_each_access(stmt, [&](const Access& access, bool writes) {
      if (access.array->space == ArraySpace::shared) {
        out.push_back(footprint(stmt, access, writes));
      }
    });
    if (const auto* loop = std::get_if<For>(&stmt.node)) {
      loops_.push_back(loop);
      for (const Stmt& inner : loop->body) collect(inner, out);
      loops_.pop_back();
    } else if (const auto* branch = std::get_if<If>(&stmt.node)) {
      predicates_.push_back(branch->condition);
      for (const Stmt& inner : branch->then) collect(inner, out);
      predicates_.back() = ir::unary(ir::Op::logical_not, branch->condition);
      for (const Stmt& inner : branch->otherwise) collect(inner, out);
      predicates_.pop_back();
    } else if (const auto* let = std::get_if<Let>(&stmt.node)) {
      lets_.push_back(*let);
    }
  }

  Footprint footprint(const Stmt& stmt, const Access& access, bool writes) {
    Footprint result;
    result.array = access.array.get();
    result.id = next_footprint_++;
    result.atomic = std::holds_alternative<Atomic>(stmt.node);
    result.writes = writes;
    result.in_background = writes && std::holds_alternative<AsyncCopy>(stmt.node);
    result.manual_sync = stmt.manual_sync;
    result.by_warp = std::holds_alternative<LoadMatrix>(stmt.node);
    result.loc = stmt.loc;
    const auto size = static_cast<size_t>(access.array->size);
    result.thread.assign(size, kNobody);
    result.warp.assign(size, kNobody);
    const std::vector<const For*> steering = steering_loops(access);
    int64_t points = program_.threads;
    for (const For* loop : steering) {
      const bool constant =
          ir::is_constant(loop->begin) && ir::is_constant(loop->end) && ir::is_constant(loop->step);
      points *=
          constant ? std::max<int64_t>(0, loop->end->integer - loop->begin->integer) : kMaxPoints;
      if (points >= kMaxPoints) break;
    }
    bool exact = points < kMaxPoints;
    if (exact) enumerate(steering, 0, access, result, exact);
    if (!exact) {
      std::fill(result.thread.begin(), result.thread.end(), kSeveral);
      std::fill(result.warp.begin(), result.warp.end(), kSeveral);
    }
    return result;
  }

  /// The loops around an access that decide what it touches: a serial loop over tiles of global memory
  /// writes the same shared elements in every round.
  std::vector<const For*> steering_loops(const Access& access) const {
    std::vector<VarRef> vars;
    ir::collect_vars(access.offset, vars);
    if (access.guard) ir::collect_vars(access.guard, vars);
    for (const Expr& predicate : predicates_) ir::collect_vars(predicate, vars);
    const auto uses = [&](const VarRef& var) {
      return std::find(vars.begin(), vars.end(), var) != vars.end();
    };
    // A definition stands before its uses.
    for (size_t i = lets_.size(); i-- > 0;) {
      if (uses(lets_[i].var)) ir::collect_vars(lets_[i].value, vars);
    }
    std::vector<const For*> result;
    for (const For* loop : loops_) {
      if (uses(loop->var)) result.push_back(loop);
    }
    return result;
  }

  void enumerate(const std::vector<const For*>& loops, size_t depth, const Access& access,
                 Footprint& result, bool& exact) {
    if (!exact) return;
    if (depth < loops.size()) {
      const For& loop = *loops[depth];
      for (int64_t i = loop.begin->integer; i < loop.end->integer; i += loop.step->integer) {
        environment_.set(*loop.var, i);
        enumerate(loops, depth + 1, access, result, exact);
      }
      environment_.clear(*loop.var);
      return;
    }
    for (int thread = 0; thread < program_.threads && exact; ++thread) {
      environment_.set(*program_.thread, thread);
      for (const Let& let : lets_) {
        if (const auto value = evaluate(let.value, environment_)) {
          environment_.set(*let.var, *value);
        } else {
          environment_.clear(*let.var);
        }
      }
      bool active = true;
      for (const Expr& predicate : predicates_)
        active = active && evaluate(predicate, environment_).value_or(1) != 0;
      if (access.guard) active = active && evaluate(access.guard, environment_).value_or(1) != 0;
      if (!active) continue;
      const auto first = evaluate(access.offset, environment_);
      if (!first) {
        exact = false;
        break;
      }
      for (int64_t e = *first; e < *first + access.width; ++e) {
        if (e < 0 || e >= access.array->size)
          continue;  // out of bounds: the checked executor's business
        touch(result.thread[static_cast<size_t>(e)], result.by_warp ? kSeveral : thread);
        touch(result.warp[static_cast<size_t>(e)], thread / 32);
      }
    }
  }

  static bool conflict(const Footprint& a, const Footprint& b) {
    if (a.array != b.array || (!a.writes && !b.writes) || (a.atomic && b.atomic)) return false;
    const bool by_warp = a.after_warp_barrier;
    const std::vector<int>& x = by_warp ? a.warp : a.thread;
    const std::vector<int>& y = by_warp ? b.warp : b.thread;
    for (size_t e = 0; e < x.size(); ++e) {
      if (x[e] == kNobody || y[e] == kNobody) continue;
      if (x[e] == kSeveral || y[e] == kSeveral || x[e] != y[e]) return true;
    }
    return false;
  }

  static const Footprint* first_conflict(const std::vector<Footprint>& pending,
                                         const std::vector<Footprint>& next,
                                         const Footprint*& with) {
    for (const Footprint& b : next) {
      if (b.manual_sync) continue;
      for (const Footprint& a : pending) {
        if (conflict(a, b)) {
          with = &a;
          return &b;
        }
      }
    }
    return nullptr;
  }

  // ---- uniformity

  bool uniform(const Expr& e) const {
    std::vector<VarRef> vars;
    ir::collect_vars(e, vars);
    return std::none_of(vars.begin(), vars.end(), [&](const VarRef& var) {
      if (var->kind == ir::VarKind::thread) return true;
      return var->kind == ir::VarKind::value && !uniform_values_.contains(var.get());
    });
  }

  /// Values that are the same in the whole block: computed from such values, or read from memory that nobody writes at
  /// an address that is.
  void note_uniform(const Stmt& stmt) {
    if (const auto* let = std::get_if<Let>(&stmt.node)) {
      if (uniform(let->value)) uniform_values_.insert(let->var.get());
    } else if (const auto* present = std::get_if<Present>(&stmt.node)) {
      uniform_values_.insert(present->var.get());
    } else if (const auto* load = std::get_if<Load>(&stmt.node)) {
      const Access& from = load->from;
      const bool constant_memory = from.array->space == ArraySpace::global && from.array->read_only;
      if (load->var && constant_memory && uniform(from.offset) &&
          (!from.guard || uniform(from.guard))) {
        uniform_values_.insert(load->var.get());
      }
    }
  }

  // ---- placement

  Stmt barrier(const Footprint& before, const Footprint& after) {
    notes_.push_back(fmt::format("{}: barrier: '{}' is {} here and {} at {} by another thread",
                                 to_string(after.loc), after.array->name,
                                 after.writes ? "written" : "read",
                                 before.writes ? "written" : "read", to_string(before.loc)));
    return {Barrier{}, after.loc};
  }

  [[noreturn]] void divergent(const Footprint& before, const Footprint& after) const {
    ErrorFields fields;
    fields.kind = ErrorKind::program;
    fields.op = program_.name;
    fields.code = "SYNC_DIVERGENT";
    fields.what =
        fmt::format("shared '{}' needs a barrier under a condition that differs between threads",
                    after.array->name);
    fields.hint =
        "move the two accesses out of the condition, or make it the same for the whole block";
    fields.loc = after.loc;
    fields.related = before.loc;
    throw Error(std::move(fields));
  }

  /// Inserts barriers into `body`; `pending` are the accesses since the last barrier, before and
  /// after.
  void process(Body& body, std::vector<Footprint>& pending, bool at_uniform_point) {
    for (size_t i = 0; i < body.size(); ++i) {
      if (synchronises(body[i])) {
        pending.clear();
        continue;
      }
      if (std::holds_alternative<WarpBarrier>(body[i].node)) {
        for (Footprint& f : pending) f.after_warp_barrier = true;
        continue;
      }
      if (const auto* wait = std::get_if<AsyncWait>(&body[i].node)) {
        pending.insert(pending.end(), in_flight_.begin(), in_flight_.end());
        if (wait->pending == 0) in_flight_.clear();
        continue;
      }
      note_uniform(body[i]);
      std::vector<Footprint> here;
      collect(body[i], here);
      if (here.empty() && !contains_barrier(body[i])) continue;
      const Footprint* before = nullptr;
      if (const Footprint* after = first_conflict(pending, here, before)) {
        if (!at_uniform_point) divergent(*before, *after);
        Stmt sync = barrier(*before, *after);
        pending.clear();
        body.insert(body.begin() + static_cast<std::ptrdiff_t>(i), std::move(sync));
        ++i;
      }
      enter(body[i], here, pending, at_uniform_point);
    }
  }

  /// Adds those accesses that `into` does not have: what was pending before a branch is on both of
  /// its sides.
  static void merge(const std::vector<Footprint>& from, std::vector<Footprint>& into) {
    std::set<std::pair<int, bool>> known;
    for (const Footprint& f : into) known.emplace(f.id, f.after_warp_barrier);
    for (const Footprint& f : from) {
      if (known.emplace(f.id, f.after_warp_barrier).second) into.push_back(f);
    }
  }

  static bool synchronises(const Stmt& stmt) {
    const auto* call = std::get_if<ExternCall>(&stmt.node);
    return std::holds_alternative<Barrier>(stmt.node) ||
           (call != nullptr && call->function->synchronises);
  }

  static bool contains_barrier(const Stmt& stmt) {
    Body one;
    bool found = false;
    if (const auto* loop = std::get_if<For>(&stmt.node)) one = loop->body;
    if (const auto* branch = std::get_if<If>(&stmt.node)) {
      one = branch->then;
      one.insert(one.end(), branch->otherwise.begin(), branch->otherwise.end());
    }
    walk(one, [&](const Stmt& s) {
      found = found || synchronises(s) || std::holds_alternative<AsyncWait>(s.node);
    });
    return found;
  }

  static bool runs_at_least_once(const For& loop) {
    return ir::is_constant(loop.begin) && ir::is_constant(loop.end) &&
           loop.begin->integer < loop.end->integer;
  }

  /// Handles the inside of one statement whose accesses (`here`) do not conflict with what came
  /// before.
  void enter(Stmt& stmt, std::vector<Footprint>& here, std::vector<Footprint>& pending,
             bool at_uniform_point) {
    if (auto* loop = std::get_if<For>(&stmt.node)) {
      const Footprint* before = nullptr;
      const bool quiet = first_conflict(here, here, before) == nullptr && !contains_barrier(stmt);
      if (!quiet) {
        const bool inside_uniform = at_uniform_point && uniform(loop->begin) && uniform(loop->end);
        const std::vector<Footprint> skipped =
            runs_at_least_once(*loop) ? std::vector<Footprint>() : pending;
        loops_.push_back(loop);
        // Twice: the second round sees what the previous iteration left.
        process(loop->body, pending, inside_uniform);
        process(loop->body, pending, inside_uniform);
        loops_.pop_back();
        pending.insert(pending.end(), skipped.begin(), skipped.end());
        return;
      }
    } else if (auto* branch = std::get_if<If>(&stmt.node)) {
      const bool inside_uniform = at_uniform_point && uniform(branch->condition);
      std::vector<Footprint> after_then = pending;
      predicates_.push_back(branch->condition);
      process(branch->then, after_then, inside_uniform);
      predicates_.back() = ir::unary(ir::Op::logical_not, branch->condition);
      process(branch->otherwise, pending, inside_uniform);
      predicates_.pop_back();
      merge(after_then, pending);
      return;
    }
    for (Footprint& f : here) (f.in_background ? in_flight_ : pending).push_back(f);
  }

  std::vector<Footprint> in_flight_;  // what asynchronous copies will have written at a wait
  Program& program_;
  Environment environment_;
  int next_footprint_ = 0;
  std::vector<const For*> loops_;
  std::vector<Expr> predicates_;
  std::vector<Let> lets_;  // copies: inserting a barrier moves statements
  std::set<const ir::Var*> uniform_values_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::string> insert_barriers(Program& program) {
  return BarrierPlanner(program).run();
}

}  // namespace tessera::codegen
