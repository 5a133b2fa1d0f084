#include "codegen/analysis/live_registers.h"

#include <algorithm>
#include <map>
#include <vector>

namespace tessera::codegen {
namespace {

/// Statements are numbered as they stand; the head and the end of a loop or branch have numbers too.
class LiveRanges {
 public:
  int64_t most(const Body& body) {
    number(body);
    std::vector<int64_t> change(static_cast<size_t>(point_) + 2);
    for (const auto& [what, range] : ranges_) {
      change[static_cast<size_t>(range.first)] += range.registers;
      // What the last statement that reads it makes may take its place.
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
    std::vector<const void*> kept;  // named before it and in it
  };

  void mention(const void* what, int64_t num_bits) {
    const auto [found, is_new] =
        ranges_.try_emplace(what, Range{point_, point_, (num_bits + 31) / 32});
    Range& range = found->second;
    range.last = point_;
    if (is_new) return;
    // The outermost loop that it came before keeps it until its end.
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
  void name(const Slice& slice) {
    name(slice.array);
    name(slice.base);
  }
  void name(const Access& access) {
    name(access.array);
    name(access.offset);
    name(access.guard);
  }

  void number(const Body& body) {
    for (const Stmt& stmt : body) {
      ++point_;
      std::visit([&](const auto& node) { visit(node); }, stmt.node);
    }
  }

  void visit(const Let& let) {
    name(let.value);
    name(let.var);
  }
  void visit(const Load& load) {
    name(load.from);
    name(load.var);
    name(load.into);
  }
  void visit(const Store& store) {
    name(store.to);
    name(store.value);
    name(store.from);
  }
  void visit(const Atomic& atomic) {
    name(atomic.to);
    name(atomic.value);
    name(atomic.compare);
    name(atomic.old);
  }
  void visit(const Convert& convert) {
    name(convert.from);
    name(convert.into);
  }
  void visit(const Packed& packed) {
    for (const Slice& arg : packed.args) name(arg);
    name(packed.into);
  }
  void visit(const LoadMatrix& matrices) {
    name(matrices.from);
    name(matrices.into);
  }
  void visit(const Mma& mma) {
    name(mma.a);
    name(mma.b);
    name(mma.c);
  }
  void visit(const For& loop) {
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
  void visit(const If& branch) {
    name(branch.condition);
    number(branch.then);
    number(branch.otherwise);
  }
  void visit(const Collective& collective) {
    for (const Expr& e : collective.args) name(e);
    name(collective.var);
  }
  void visit(const Declare& declare) {
    if (declare.zero) name(declare.array);
    name(declare.array->address);
    name(declare.array->block);
  }
  void visit(const Present& present) { name(present.var); }
  void visit(const Assert& assertion) { name(assertion.condition); }
  void visit(const CheckIndices&) {}
  void visit(const Print& print) {
    for (const Expr& e : print.args) name(e);
  }
  void visit(const ExternCall& call) {
    for (const Expr& e : call.args) name(e);
    name(call.var);
  }
  void visit(const AsyncCopy& copy) {
    name(copy.from);
    name(copy.to);
  }
  void visit(const Return& leave) { name(leave.condition); }
  void visit(const Barrier&) {}
  void visit(const WarpBarrier&) {}
  void visit(const Comment&) {}
  void visit(const Dependency&) {}
  void visit(const AsyncCommit&) {}
  void visit(const AsyncWait&) {}

  int64_t point_ = 0;
  std::vector<Loop> loops_;  // around this point, outermost first
  std::map<const void*, Range> ranges_;
};

}  // namespace

int64_t live_registers(const Program& program) {
  return LiveRanges().most(program.body);
}

}  // namespace tessera::codegen
