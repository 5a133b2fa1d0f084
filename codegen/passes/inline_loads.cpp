#include "codegen/passes/inline_loads.h"

#include <algorithm>
#include <map>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

bool may_write(const Array& written, const Array& read) {
  if (read.space == ArraySpace::registers) return &written == &read;
  // Arrays of the arena may overlap, a block of the cluster may be this block, and two global tensors
  // of a call may be the same memory.
  return (written.space == ArraySpace::global) == (read.space == ArraySpace::global) &&
         written.space != ArraySpace::registers && !read.is_constant();
}

/// True if accesses may not move across a statement with this order.
bool keeps_accesses_apart(const Order& order) {
  switch (order.kind) {
    case Order::Kind::converge:
    case Order::Kind::commit:  // of started copies
      return false;
    case Order::Kind::exchange:
    case Order::Kind::barrier:
    case Order::Kind::arrive:
    case Order::Kind::wait:
    case Order::Kind::fence:
    case Order::Kind::proxy_fence:
    case Order::Kind::await:
    case Order::Kind::previous_kernel:
    case Order::Kind::next_kernel:
    case Order::Kind::leave:
      return true;
  }
  return true;
}

/// True if the statement itself may change the value that a load of `array` reads.
class Disturbance : public EffectReceiver {
 public:
  explicit Disturbance(const Array& array) : array_(array) {}

  void memory(const MemoryEffect& effect) override {
    const bool starts = effect.in_flight && is_memory();
    found = found || starts || (effect.writes && may_write(*effect.access.array, array_));
  }
  void registers(const RegisterEffect& effect) override {
    found = found || (effect.writes && may_write(*effect.slice.array, array_));
  }
  void orders(const Order& order) override {
    found = found || (is_memory() && keeps_accesses_apart(order));
  }
  void calls(const ir::ExternFunction& function) override {
    found = found || (is_memory() && !function.pure);
  }

  bool found = false;

 private:
  bool is_memory() const { return array_.space != ArraySpace::registers; }

  const Array& array_;
};

/// True if `stmt`, or a statement inside it, may change the value that a load of `array` reads.
bool disturbs(const Stmt& stmt, const Array& array) {
  Disturbance disturbance(array);
  walk_stmt(stmt, [&](const Stmt& inner) { effects(inner, disturbance); });
  return disturbance.found;
}

/// Runs backwards: all uses of a variable are seen before its definition.
class LoadMover : EffectReceiver {
 public:
  void visit(Body& body) {
    for (size_t i = body.size(); i-- > 0;) {
      for_each_body(body[i], [&](Body& inner) { visit(inner); });
      place_ = {&body, i};
      // Loop headers and waits are evaluated repeatedly: nothing moves into them.
      const auto* atomic = std::get_if<Atomic>(&body[i].node);
      if (repeats(body[i]) || (atomic != nullptr && atomic->until)) place_.body = nullptr;
      if (auto* load = std::get_if<Load>(&body[i].node)) decide(*load);
      effects(body[i], *this);
    }
  }

 private:
  /// Where an expression is evaluated. No body: a load must not move there.
  struct Place {
    const Body* body = nullptr;
    size_t position = 0;
  };
  struct Use {
    int count = 0;
    Place place;  // of the last one seen
  };

  void decide(Load& load) {
    if (!load.var) return;
    const auto found = uses_.find(load.var.get());
    if (found == uses_.end() || found->second.count != 1) return;
    const Place to = found->second.place;
    if (to.body != place_.body) return;
    const auto at = [&](size_t position) {
      return to.body->begin() + static_cast<std::ptrdiff_t>(position);
    };
    const bool moves =
        std::none_of(at(place_.position + 1), at(to.position),
                     [&](const Stmt& between) { return disturbs(between, *load.from.array); });
    if (!moves) return;
    load.at_use = true;
    place_ = to;  // the load's own operands are evaluated there too
  }

  void memory(const MemoryEffect& effect) override {
    use(effect.access.offset);
    use(effect.access.guard);
  }
  void registers(const RegisterEffect& effect) override { use(effect.slice.base); }
  void evaluates(const Expr& e) override { use(e); }
  void use(const Expr& e) {
    if (!e) return;
    if (e->op != ir::Op::var) {
      for (const Expr& arg : e->args) use(arg);
      return;
    }
    Use& use = uses_[e->var.get()];
    ++use.count;
    use.place = place_;
  }

  std::map<const ir::Var*, Use> uses_;
  Place place_;  // of the current statement
};

}  // namespace

void inline_loads(Program& program) {
  LoadMover().visit(program.body);
}

}  // namespace tessera::codegen
