#include "codegen/analysis/live_registers.h"

#include <algorithm>
#include <map>
#include <vector>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

/// Statements are numbered in program order; the head and the end of a loop or branch have numbers
/// too.
class LiveRanges : EffectReceiver {
 public:
  int64_t most(const Body& body) {
    number(body);
    std::vector<int64_t> change(static_cast<size_t>(point_) + 2);
    for (const auto& [what, range] : ranges_) {
      change[static_cast<size_t>(range.first)] += range.registers;
      // The result of the last statement that reads a value may reuse its registers.
      change[static_cast<size_t>(std::max(range.last, range.first + 1))] -= range.registers;
    }
    int64_t live = 0, highest = 0;
    for (const int64_t step : change) highest = std::max(highest, live += step);
    return highest;
  }

 private:
  struct Range {
    int64_t first = 0, last = 0;
    int64_t registers = 0;
  };

  struct Loop {
    int64_t head = 0;
    std::vector<const void*> kept;  // named before the loop and in it
  };

  void mention(const void* what, int64_t num_bits) {
    const auto [found, is_new] =
        ranges_.try_emplace(what, Range{point_, point_, (num_bits + 31) / 32});
    Range& range = found->second;
    range.last = point_;
    if (is_new) return;
    // The outermost loop that follows its definition keeps it live to its end.
    const auto loop = std::find_if(loops_.begin(), loops_.end(),
                                   [&](const Loop& l) { return range.first < l.head; });
    if (loop != loops_.end()) loop->kept.push_back(what);
  }
  void name(const VarRef& var) {
    if (!var || var->kind != ir::VarKind::value || var->type == DType::boolean) return;
    mention(var.get(), bits(var->type));
  }
  void name(const Expr& e) {
    if (!e) return;
    std::vector<VarRef> vars;
    ir::collect_vars(e, vars);
    for (const VarRef& var : vars) name(var);
  }
  void name(const ArrayRef& array) {
    if (!array || array->space != ArraySpace::registers) return;
    mention(array.get(), array->size * bits(array->dtype));
  }
  // ---- one statement
  void memory(const MemoryEffect& effect) override {
    name(effect.access.array);
    name(effect.access.offset);
    name(effect.access.guard);
  }
  void registers(const RegisterEffect& effect) override {
    name(effect.slice.array);
    name(effect.slice.base);
  }
  void evaluates(const Expr& e) override { name(e); }
  void binds(const VarRef& var, const Expr*) override { name(var); }
  void declares(const ArrayRef& array, bool zeroed) override {
    if (zeroed) name(array);
  }

  void number(const Body& body) {
    for (const Stmt& stmt : body) {
      ++point_;
      by_structure(
          stmt, [&](const For& loop) { number(loop); },
          [&](const If& branch) {
            name(branch.condition);
            number(branch.then);
            number(branch.otherwise);
          },
          [&](const RoleBodies& bodies) {
            for (const RoleBodies::Role& role : bodies.roles) number(role.body);
          },
          [&] { effects(stmt, *this); });
    }
  }
  void number(const For& loop) {
    name(loop.begin);
    if (!loop.unrolled) mention(loop.var.get(), bits(loop.var->type));
    loops_.push_back({point_, {}});
    number(loop.body);
    ++point_;
    name(loop.end);
    name(loop.step);
    if (!loop.unrolled) mention(loop.var.get(), bits(loop.var->type));
    for (const void* what : loops_.back().kept) ranges_.at(what).last = point_;
    loops_.pop_back();
  }

  int64_t point_ = 0;
  std::vector<Loop> loops_;  // around this point, outermost first
  std::map<const void*, Range> ranges_;
};

}  // namespace

int64_t live_registers(const Program& program) {
  return LiveRanges().most(program.body);
}

}  // namespace tessera::codegen
