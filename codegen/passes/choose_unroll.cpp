#include "codegen/passes/choose_unroll.h"

#include <set>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kMostSlots = 16, kRounds = 4;

/// Finds the variables that determine which register an access names, and chooses factors for loops
/// over other variables. Runs backwards: uses come after definitions.
class UnrollChooser : EffectReceiver {
 public:
  void visit(Body& body) {
    for (auto stmt = body.rbegin(); stmt != body.rend(); ++stmt) {
      for_each_body(*stmt, [&](Body& inner) { visit(inner); });
      effects(*stmt, *this);
      if (auto* loop = std::get_if<For>(&stmt->node)) choose(*loop);
    }
  }

 private:
  void choose(For& loop) const {
    if (!loop.over_slots || picks_.contains(loop.var.get())) return;
    const int64_t slots = loop.end->integer;
    if (slots > kMostSlots) loop.at_once = (slots + kRounds - 1) / kRounds;
  }

  void memory(const MemoryEffect& effect) override {
    if (effect.access.array->space == ArraySpace::registers) mark(effect.access.offset);
  }
  void registers(const RegisterEffect& effect) override { mark(effect.slice.base); }
  void binds(const VarRef& var, const Expr* value) override {
    if (value != nullptr && picks_.contains(var.get())) mark(*value);
  }
  void mark(const Expr& e) {
    std::vector<VarRef> vars;
    ir::collect_vars(e, vars);
    for (const VarRef& var : vars) picks_.insert(var.get());
  }

  std::set<const ir::Var*> picks_;
};

}  // namespace

void choose_unroll(Program& program) {
  UnrollChooser().visit(program.body);
}

}  // namespace tessera::codegen
