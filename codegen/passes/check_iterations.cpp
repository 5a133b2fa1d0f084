#include "codegen/passes/check_iterations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/analysis/evaluate.h"
#include "codegen/analysis/index_form.h"
#include "codegen/analysis/round_count.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"
#include "dsl/ir/integer.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kMaxPoints = 1 << 16;  // points per access; of longer loops the beginning

/// A loop variable with values 0 .. extent - 1.
struct Axis {
  ir::VarRef var;
  int64_t extent = 1;
};

/// A shared-memory access of the loop.
struct SharedAccess {
  ir::BufferRef buffer;
  std::vector<ir::Expr> indices;
  bool reads = false, writes = false;  // both: an atomic
  std::vector<ir::Expr> guards;        // its enclosing conditions
  std::vector<Axis> inner;             // loops between the parallel loop and the access
  SourceLoc loc;
};

/// The place of an access in the whole buffer, row-major: the part that iterations share, and their
/// own part.
struct IndexPlace {
  Form shared, own;
};

class LoopCheck {
 public:
  LoopCheck(const ir::Kernel& kernel, const ir::Loop& loop, std::vector<const ir::Loop*> outer,
            IndexMath math)
      : kernel_(kernel), outer_(std::move(outer)), math_(std::move(math)) {
    for (size_t v = 0; v < loop.vars.size(); ++v) {
      axes_.push_back({loop.vars[v], loop.extents[v]->integer});
    }
    SharedAccess outermost;
    is_known_ = collect(loop.body, outermost);
  }

  void run() const {
    if (!is_known_) return;
    for (const SharedAccess& write : accesses_) {
      if (!write.writes) continue;
      for (const SharedAccess& read : accesses_) {
        const bool atomics = read.writes && write.reads;
        const bool same_memory = storage_of(*read.buffer).id == storage_of(*write.buffer).id;
        if (read.reads && !atomics && same_memory) check(read, write);
      }
    }
  }

 private:
  /// Collects the accesses. False if the loop has barriers of the author, or unknown accesses.
  bool collect(const ir::Body& body, const SharedAccess& around) {
    return std::all_of(body.begin(), body.end(),
                       [&](const ir::Stmt& stmt) { return collect(stmt, around); });
  }

  bool collect(const ir::Stmt& stmt, const SharedAccess& around) {
    if (stmt.manual_sync || has_order(stmt, Order::Kind::barrier)) return false;
    if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
      SharedAccess inside = around;
      const bool counts = ir::is_constant(loop->begin, 0) && ir::is_constant(loop->step, 1) &&
                          ir::is_constant(loop->extents[0]);
      // The index of a loop of unknown length has no value, so its accesses stay unknown.
      if (counts) inside.inner.push_back({loop->vars[0], loop->extents[0]->integer});
      inner_vars_.insert(loop->vars[0].get());
      return collect(loop->body, inside);
    }
    if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
      SharedAccess inside = around;
      inside.guards.push_back(branch->condition);
      if (!collect(branch->then, inside)) return false;
      inside.guards.back() = ir::unary(ir::Op::logical_not, branch->condition);
      return collect(branch->otherwise, inside);
    }
    if (const auto* let = std::get_if<ir::Let>(&stmt.node)) {
      if (is_integer(let->var->type)) {
        math_.define(let->var, let->value);
        lets_[let->var.get()] = let->value;
      }
    } else if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
      add(around, *load, true, false, stmt.loc);
    } else if (const auto* store = std::get_if<ir::ElementStore>(&stmt.node)) {
      add(around, *store, false, true, stmt.loc);
    } else if (const auto* atomic = std::get_if<ir::Atomic>(&stmt.node)) {
      add(around, *atomic, true, true, stmt.loc);
    } else {
      return !uses_shared(stmt);  // an access of an unknown kind
    }
    return true;
  }

  static bool uses_shared(const ir::Stmt& stmt) {
    bool found = false;
    for_each_use(stmt, [&](const ir::BufferRef& buffer, bool) {
      found = found || storage_of(*buffer).space == ir::Space::shared;
    });
    return found;
  }

  template <class Element>
  void add(const SharedAccess& around, const Element& element, bool reads, bool writes,
           SourceLoc loc) {
    if (element.buffer->space != ir::Space::shared) return;
    SharedAccess access = around;
    access.buffer = element.buffer;
    access.indices = element.indices;
    access.reads = reads;
    access.writes = writes;
    access.loc = loc;
    accesses_.push_back(std::move(access));
  }

  bool is_counted(const SharedAccess& access, const ir::VarRef& var) const {
    const auto has = [&](const std::vector<Axis>& axes) {
      return std::any_of(axes.begin(), axes.end(), [&](const Axis& a) { return a.var == var; });
    };
    return has(axes_) || has(access.inner);
  }
  /// True if the Var has the same value in all iterations.
  bool is_shared(const ir::VarRef& var) const {
    const bool outer_loop =
        var->kind == ir::VarKind::loop && !inner_vars_.contains(var.get()) &&
        std::none_of(axes_.begin(), axes_.end(), [&](const Axis& a) { return a.var == var; });
    return outer_loop || var->kind == ir::VarKind::dim || var->kind == ir::VarKind::scalar ||
           var->kind == ir::VarKind::block;
  }

  /// The index of an enclosing loop in its first or last round, if that is constant.
  std::optional<int64_t> outer_index(const ir::VarRef& var, bool last_round) const {
    for (const ir::Loop* loop : outer_) {
      if (loop->vars[0] != var) continue;
      const bool counts = ir::is_constant(loop->begin) && ir::is_constant(loop->extents[0]) &&
                          ir::is_constant(loop->step) && !ends_early(*loop);
      if (!counts || loop->begin->integer >= loop->extents[0]->integer) return std::nullopt;
      const int64_t begin = loop->begin->integer, step = loop->step->integer;
      const int64_t rounds = round_count(begin, loop->extents[0]->integer, step);
      return last_round ? begin + (rounds - 1) * step : begin;
    }
    return std::nullopt;
  }
  bool is_sampled(const ir::VarRef& var) const { return outer_index(var, false).has_value(); }

  /// Returns nothing if the access depends on data, or mixes parameters with iteration indices.
  std::optional<IndexPlace> place_of(const SharedAccess& access) const {
    ir::Expr flat = ir::index(0);
    for (size_t d = 0; d < access.indices.size(); ++d) {
      flat = flat * access.buffer->shape[d] + access.indices[d];
    }
    const Form form = math_.form(flat, true);
    IndexPlace place;
    place.own.constant = form.constant;
    for (const Term& term : form.terms) {
      std::vector<ir::VarRef> vars;
      ir::collect_vars(term.atom, vars);
      const auto counted = [&](const ir::VarRef& var) { return is_counted(access, var); };
      const auto shared = [&](const ir::VarRef& var) { return is_shared(var); };
      if (std::all_of(vars.begin(), vars.end(), counted)) {
        place.own.terms.push_back(term);
      } else if (std::all_of(vars.begin(), vars.end(), shared)) {
        place.shared.terms.push_back(term);
      } else if (std::all_of(vars.begin(), vars.end(), [&](const ir::VarRef& var) {
                   return counted(var) || is_sampled(var);
                 })) {
        place.own.terms.push_back(term);
      } else {
        return std::nullopt;
      }
    }
    return place;
  }

  static bool same(const Form& a, const Form& b) {
    return a.constant == b.constant && std::equal(a.terms.begin(), a.terms.end(), b.terms.begin(),
                                                  b.terms.end(), [](const Term& x, const Term& y) {
                                                    return x.coefficient == y.coefficient &&
                                                           ir::equal(x.atom, y.atom);
                                                  });
  }

  /// True if no two iterations access the same element: the place is a mixed-radix number with the loop
  /// variables as its digits.
  bool keeps_apart(const Form& own) const {
    std::vector<std::pair<int64_t, int64_t>> digits;  // coefficient, extent
    for (const Axis& axis : axes_) {
      const auto term = std::find_if(own.terms.begin(), own.terms.end(), [&](const Term& t) {
        return t.atom->op == ir::Op::var && t.atom->var == axis.var;
      });
      if (axis.extent == 1) continue;
      if (term == own.terms.end() || term->coefficient < 1) return false;
      digits.push_back({term->coefficient, axis.extent});
    }
    if (own.terms.size() != digits.size()) return false;
    std::sort(digits.begin(), digits.end());
    for (size_t i = 1; i < digits.size(); ++i) {
      if (digits[i].first < digits[i - 1].first * digits[i - 1].second) return false;
    }
    return true;
  }

  void check(const SharedAccess& read, const SharedAccess& write) const {
    const auto from = place_of(read), to = place_of(write);
    if (!from || !to || !same(from->shared, to->shared)) return;
    if (same(from->own, to->own) && keeps_apart(to->own)) return;
    for (const bool last_round : {false, true}) check_round(read, *from, write, *to, last_round);
  }

  /// Checks the first or the last round of the enclosing loops.
  void check_round(const SharedAccess& read, const IndexPlace& from, const SharedAccess& write,
                   const IndexPlace& to, bool last_round) const {
    std::map<int64_t, int64_t> writer;  // element -> iteration, the first of several
    std::set<int64_t> several;
    const bool writes_known =
        for_each_point(write, to.own, last_round, [&](int64_t element, int64_t at) {
          const auto [entry, is_new] = writer.try_emplace(element, at);
          if (!is_new && entry->second != at) several.insert(element);
        });
    if (!writes_known) return;
    for_each_point(read, from.own, last_round, [&](int64_t element, int64_t at) {
      const auto found = writer.find(element);
      if (found == writer.end()) return;
      if (found->second == at && !several.contains(element)) return;
      refuse(read, write, at, found->second);
    });
  }

  /// Calls fn(element, iteration) where the guards hold. False if a guard or index has no value.
  template <class Fn>
  bool for_each_point(const SharedAccess& access, const Form& own, bool last_round,
                      const Fn& fn) const {
    std::vector<Axis> axes = axes_;
    axes.insert(axes.end(), access.inner.begin(), access.inner.end());
    std::vector<ir::Expr> guards;
    for (const ir::Expr& guard : access.guards) guards.push_back(expand(guard));
    std::optional<int64_t> points = 1, rounds = 1;
    for (const Axis& axis : access.inner) {
      if (rounds) rounds = ir::compute_exactly(ir::Op::mul, DType::i64, *rounds, axis.extent);
    }
    for (const Axis& axis : axes) {
      if (points) points = ir::compute_exactly(ir::Op::mul, DType::i64, *points, axis.extent);
    }
    if (!points || !rounds) return false;
    Environment environment(kernel_.num_vars);
    std::vector<ir::VarRef> vars;
    for (const Term& term : own.terms) ir::collect_vars(term.atom, vars);
    for (const ir::Expr& guard : guards) ir::collect_vars(guard, vars);
    for (const ir::VarRef& var : vars) {
      if (const auto index = outer_index(var, last_round)) environment.set(*var, *index);
    }
    for (int64_t point = 0; point < std::min(*points, kMaxPoints); ++point) {
      int64_t rest = point;
      for (size_t a = axes.size(); a-- > 0;) {
        environment.set(*axes[a].var, rest % axes[a].extent);
        rest /= axes[a].extent;
      }
      bool happens = true;
      for (const ir::Expr& guard : guards) {
        const auto value = evaluate(guard, environment);
        if (!value) return false;
        happens = happens && *value != 0;
      }
      if (!happens) continue;
      int64_t element = own.constant;
      for (const Term& term : own.terms) {
        const auto value = evaluate(term.atom, environment);
        if (!value) return false;
        element += term.coefficient * *value;
      }
      fn(element, point / *rounds);
    }
    return true;
  }

  /// Expands the integer lets of the loop.
  ir::Expr expand(const ir::Expr& e) const {
    return ir::substitute(e, [&](const ir::VarRef& var) {
      const auto found = lets_.find(var.get());
      return found == lets_.end() ? ir::Expr() : expand(found->second);
    });
  }

  std::string iteration_name(int64_t iteration) const {
    std::vector<int64_t> coordinates(axes_.size());
    for (size_t a = axes_.size(); a-- > 0;) {
      coordinates[a] = iteration % axes_[a].extent;
      iteration /= axes_[a].extent;
    }
    return fmt::format("({})", fmt::join(coordinates, ", "));
  }

  [[noreturn]] void refuse(const SharedAccess& read, const SharedAccess& write, int64_t reader,
                           int64_t writer) const {
    const std::string& name = storage_of(*read.buffer).name;
    throw Error(
        {.kind = ErrorKind::program,
         .op = kernel_.name,
         .what = fmt::format("an iteration of a parallel loop reads from shared '{}' what another "
                             "iteration writes",
                             name),
         .argument = name,
         .expected =
             "iterations that read only what they write themselves, or what the loop leaves "
             "alone",
         .got = reader == writer
                    ? fmt::format("iteration {} reads an element that it is not alone to write",
                                  iteration_name(reader))
                    : fmt::format("iteration {} reads an element that iteration {} writes",
                                  iteration_name(reader), iteration_name(writer)),
         .hint = "read into a fragment in one parallel loop and write in the next",
         .code = "ITERATION_ORDER",
         .loc = read.loc,
         .related = write.loc});
  }

  const ir::Kernel& kernel_;
  const std::vector<const ir::Loop*> outer_;  // enclosing loops
  IndexMath math_;
  std::vector<Axis> axes_;  // of the parallel loop
  std::vector<SharedAccess> accesses_;
  std::set<const ir::Var*> inner_vars_;
  std::map<const ir::Var*, ir::Expr> lets_;  // of the loop, integers
  bool is_known_ = true;
};

/// True if the body both reads and writes some shared memory.
bool works_in_place(const ir::Body& body) {
  std::set<int> read, written;
  for_each_use(body, [&](const ir::BufferRef& buffer, bool writes) {
    if (buffer->space != ir::Space::shared) return;
    (writes ? written : read).insert(storage_of(*buffer).id);
  });
  return std::any_of(written.begin(), written.end(), [&](int id) { return read.contains(id); });
}

void visit(const ir::Kernel& kernel, const ir::Body& body, std::vector<const ir::Loop*>& outer,
           IndexMath& math) {
  for (const ir::Stmt& stmt : body) {
    if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
      if (loop->kind == ir::LoopKind::parallel) {
        if (works_in_place(loop->body)) LoopCheck(kernel, *loop, outer, math).run();
      } else {
        outer.push_back(loop);
        visit(kernel, loop->body, outer, math);
        outer.pop_back();
      }
      continue;
    }
    for_each_binding(stmt, [&](const ir::VarRef& var, const ir::Expr* value) {
      if (value != nullptr && is_integer(var->type)) math.define(var, *value);
    });
    for_each_body(stmt, [&](const ir::Body& inner) { visit(kernel, inner, outer, math); });
  }
}

}  // namespace

void check_iterations(const ir::Kernel& kernel) {
  IndexMath math;
  std::vector<const ir::Loop*> outer;
  visit(kernel, kernel.body, outer, math);
}

}  // namespace tessera::codegen
