#include "codegen/passes/check_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "codegen/layouts/fragment_layouts.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

class SumCheck {
 public:
  SumCheck(const ir::Kernel& kernel, const ir::Loop& loop, const LoopLayout& plan, SourceLoc loc)
      : kernel_(kernel), loc_(loc) {
    for (size_t a = 0; a < loop.vars.size(); ++a) {
      const auto& digits = plan.layout.digits();
      const bool is_shared_out =
          std::any_of(digits.begin(), digits.end(), [&](const layout::Digit& digit) {
            return digit.axis == static_cast<int>(a) && digit.thread > 0 && digit.extent > 1;
          });
      if (is_shared_out) axes_.push_back({loop.vars[a], loop.extents[a]->integer});
    }
    if (!axes_.empty()) visit(loop.body);
  }

 private:
  struct Axis {
    ir::VarRef index;
    int64_t extent;
  };

  struct Condition {
    ir::Expr value;
    bool holds = true;
  };

  void visit(const ir::Body& body) {
    const size_t num_set = set_.size();
    for (const ir::Stmt& stmt : body) {
      if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
        loads_[load->var.get()] = load;
      } else if (const auto* store = std::get_if<ir::ElementStore>(&stmt.node)) {
        check(*store, stmt.loc);
      } else if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
        for (const bool holds : {true, false}) {
          conditions_.push_back({branch->condition, holds});
          visit(holds ? branch->then : branch->otherwise);
          conditions_.pop_back();
        }
      } else {
        for_each_binding(stmt, [&](const ir::VarRef& var, const ir::Expr* value) {
          if (value != nullptr) lets_[var.get()] = *value;
          if (value == nullptr) inner_.insert(var.get());
        });
        for_each_body(stmt, [&](const ir::Body& inner) { visit(inner); });
      }
    }
    set_.resize(num_set);  // what stands in a branch may not run
  }

  void check(const ir::ElementStore& store, SourceLoc loc) {
    const ir::Buffer& buffer = *store.buffer;
    // A fragment, or the shared copy that stands for one.
    if (buffer.space != ir::Space::fragment && buffer.stands_for.empty()) return;
    std::set<const ir::Var*> seen;
    if (!reads_old(store.value, store, seen)) {
      set_.push_back(&store);
      return;
    }
    for (const Axis& axis : axes_) {
      const auto has = [&](const ir::Expr& e) { return depends(e, axis.index); };
      if (std::any_of(store.indices.begin(), store.indices.end(), has)) continue;
      const bool is_chosen =
          std::any_of(conditions_.begin(), conditions_.end(), [&](const Condition& condition) {
            return holds_once(condition.value, condition.holds, axis.index);
          });
      if (!is_chosen) refuse(store, axis, loc);
    }
  }

  /// True if the condition holds for at most one value of the index, as j == k(i) does.
  bool holds_once(const ir::Expr& condition, bool holds, const ir::VarRef& index) const {
    switch (condition->op) {
      case ir::Op::var: {
        const auto let = lets_.find(condition->var.get());
        return let != lets_.end() && holds_once(let->second, holds, index);
      }
      case ir::Op::logical_not:
        return holds_once(condition->args[0], !holds, index);
      case ir::Op::logical_and:
      case ir::Op::logical_or:
        return (condition->op == ir::Op::logical_and) == holds &&
               (holds_once(condition->args[0], holds, index) ||
                holds_once(condition->args[1], holds, index));
      case ir::Op::eq:
      case ir::Op::ne: {
        const ir::Expr &a = condition->args[0], &b = condition->args[1];
        return (condition->op == ir::Op::eq) == holds &&
               ((is_shifted(a, index) && is_fixed(b, index)) ||
                (is_shifted(b, index) && is_fixed(a, index)));
      }
      default:
        return false;
    }
  }

  /// The index, or the index plus or minus what is the same in all of its iterations.
  bool is_shifted(const ir::Expr& e, const ir::VarRef& index) const {
    if (e->op == ir::Op::var) {
      const auto let = lets_.find(e->var.get());
      return e->var == index || (let != lets_.end() && is_shifted(let->second, index));
    }
    const bool is_sum = e->op == ir::Op::add, is_difference = e->op == ir::Op::sub;
    return (is_sum || is_difference) &&
           ((is_shifted(e->args[0], index) && is_fixed(e->args[1], index)) ||
            (is_sum && is_fixed(e->args[0], index) && is_shifted(e->args[1], index)));
  }

  /// The same in all iterations of the index: made of neither it nor the index of a loop inside.
  bool is_fixed(const ir::Expr& e, const ir::VarRef& index) const {
    return !depends(e,
                    [&](const ir::Var* var) { return var == index.get() || inner_.contains(var); });
  }

  bool depends(const ir::Expr& e, const ir::VarRef& index) const {
    return depends(e, [&](const ir::Var* var) { return var == index.get(); });
  }

  template <class IsWanted>
  bool depends(const ir::Expr& e, const IsWanted& is_wanted) const {
    std::vector<ir::VarRef> vars;
    ir::collect_vars(e, vars);
    return std::any_of(vars.begin(), vars.end(), [&](const ir::VarRef& var) {
      if (is_wanted(var.get())) return true;
      const auto let = lets_.find(var.get());
      if (let != lets_.end()) return depends(let->second, is_wanted);
      const auto load = loads_.find(var.get());
      return load != loads_.end() &&
             std::any_of(load->second->indices.begin(), load->second->indices.end(),
                         [&](const ir::Expr& at) { return depends(at, is_wanted); });
    });
  }

  bool reads_old(const ir::Expr& value, const ir::ElementStore& store,
                 std::set<const ir::Var*>& seen) const {
    std::vector<ir::VarRef> vars;
    ir::collect_vars(value, vars);
    return std::any_of(vars.begin(), vars.end(), [&](const ir::VarRef& var) {
      if (!seen.insert(var.get()).second) return false;
      const auto let = lets_.find(var.get());
      if (let != lets_.end()) return reads_old(let->second, store, seen);
      const auto load = loads_.find(var.get());
      if (load == loads_.end()) return false;
      const bool is_set = std::any_of(set_.begin(), set_.end(), [&](const ir::ElementStore* set) {
        return set->buffer == store.buffer && same_indices(set->indices, store.indices);
      });
      return !is_set && load->second->buffer == store.buffer &&
             same_indices(load->second->indices, store.indices);
    });
  }

  [[noreturn]] void refuse(const ir::ElementStore& store, const Axis& axis, SourceLoc loc) const {
    const ir::Buffer& buffer = *store.buffer;
    std::string element = buffer.stands_for.empty() ? buffer.name : buffer.stands_for;
    for (size_t d = 0; d < store.indices.size(); ++d) {
      element += (d == 0 ? "[" : ", ") + ir::to_string(store.indices[d]);
    }
    const bool is_conditional = std::any_of(
        conditions_.begin(), conditions_.end(),
        [&](const Condition& condition) { return depends(condition.value, axis.index); });
    throw Error({.kind = ErrorKind::program,
                 .op = kernel_.name,
                 .what = fmt::format("{} iterations of a parallel loop change one element, {}]",
                                     is_conditional ? "several" : "all", element),
                 .expected = "an element of its own for each iteration",
                 .got = fmt::format("one for {} = 0 .. {}{}", axis.index->name, axis.extent - 1,
                                    is_conditional ? ", where the condition holds" : ""),
                 .hint = "use k.reduce_sum (_max, _min) of a fragment or k.reducer",
                 .code = "ONE_ELEMENT",
                 .loc = loc,
                 .related = loc_});
  }

  const ir::Kernel& kernel_;
  const SourceLoc loc_;
  std::vector<Axis> axes_;             // whose iterations are of several threads
  std::vector<Condition> conditions_;  // around the statement, inside of the loop
  std::set<const ir::Var*> inner_;  // indices of loops inside, and other values of unknown origin
  std::map<const ir::Var*, ir::Expr> lets_;
  std::map<const ir::Var*, const ir::ElementLoad*> loads_;
  // Stores that do not read the old value and that the iteration has made.
  std::vector<const ir::ElementStore*> set_;
};

void visit(const ir::Kernel& kernel, const ir::Body& body, const LayoutSolution& layouts) {
  for (const ir::Stmt& stmt : body) {
    const auto* loop = std::get_if<ir::Loop>(&stmt.node);
    if (loop != nullptr && loop->kind == ir::LoopKind::parallel) {
      SumCheck(kernel, *loop, layouts.loops.at(loop_id(*loop)), stmt.loc);
    } else {
      for_each_body(stmt, [&](const ir::Body& inner) { visit(kernel, inner, layouts); });
    }
  }
}

}  // namespace

void check_sums(const ir::Kernel& kernel, const LayoutSolution& layouts) {
  visit(kernel, kernel.body, layouts);
}

}  // namespace tessera::codegen
