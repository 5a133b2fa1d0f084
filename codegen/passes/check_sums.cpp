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

  void visit(const ir::Body& body) {
    for (const ir::Stmt& stmt : body) {
      if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
        loads_[load->var.get()] = load;
      } else if (const auto* store = std::get_if<ir::ElementStore>(&stmt.node)) {
        check(*store, stmt.loc);
      } else if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
        conditions_.push_back(branch->condition);
        visit(branch->then);
        visit(branch->otherwise);
        conditions_.pop_back();
      } else {
        for_each_binding(stmt, [&](const ir::VarRef& var, const ir::Expr* value) {
          if (value != nullptr) lets_[var.get()] = *value;
        });
        for_each_body(stmt, [&](const ir::Body& inner) { visit(inner); });
      }
    }
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
      if (std::any_of(conditions_.begin(), conditions_.end(), has)) continue;
      refuse(store, axis, loc);
    }
  }

  bool depends(const ir::Expr& e, const ir::VarRef& index) const {
    std::vector<ir::VarRef> vars;
    ir::collect_vars(e, vars);
    return std::any_of(vars.begin(), vars.end(), [&](const ir::VarRef& var) {
      if (var == index) return true;
      const auto let = lets_.find(var.get());
      if (let != lets_.end()) return depends(let->second, index);
      const auto load = loads_.find(var.get());
      return load != loads_.end() &&
             std::any_of(load->second->indices.begin(), load->second->indices.end(),
                         [&](const ir::Expr& at) { return depends(at, index); });
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
    throw Error(
        {.kind = ErrorKind::program,
         .op = kernel_.name,
         .what = fmt::format("all iterations of a parallel loop change one element, {}]", element),
         .expected = "an element of its own for each iteration",
         .got = fmt::format("one for {} = 0 .. {}", axis.index->name, axis.extent - 1),
         .hint = "use k.reduce_sum (_max, _min) of a fragment or k.reducer",
         .code = "ONE_ELEMENT",
         .loc = loc,
         .related = loc_});
  }

  const ir::Kernel& kernel_;
  const SourceLoc loc_;
  std::vector<Axis> axes_;  // whose iterations are of several threads
  std::vector<ir::Expr> conditions_;
  std::map<const ir::Var*, ir::Expr> lets_;
  std::map<const ir::Var*, const ir::ElementLoad*> loads_;
  std::vector<const ir::ElementStore*> set_;  // stores that do not read the old value
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
