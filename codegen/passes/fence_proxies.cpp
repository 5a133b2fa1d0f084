#include "codegen/passes/fence_proxies.h"

#include <algorithm>
#include <vector>

#include "codegen/analysis/footprint.h"
#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

class ProxyFences {
 public:
  explicit ProxyFences(const Program& program) {
    walk(program.body, [&](const Stmt& stmt) {
      for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
        if (effect.matrix != nullptr) operands_.push_back(effect.access.array);
      });
    });
  }
  bool any() const { return !operands_.empty(); }

  void place(Body& body) {
    for (size_t i = 0; i < body.size(); ++i) {
      look(body[i]);
      by_structure(
          body[i],
          [&](For& loop) {
            place(loop.body);
            place(loop.body);  // the next round's barriers follow what this round leaves
          },
          [&](If& branch) {
            const State before = state_;
            place(branch.then);
            const State then = std::exchange(state_, before);
            place(branch.otherwise);
            state_.written = state_.written || then.written;
            state_.in_flight = state_.in_flight || then.in_flight;
          },
          [&](RoleBodies& bodies) {
            const State before = state_;
            State after;
            for (RoleBodies::Role& role : bodies.roles) {
              state_ = before;
              place(role.body);
              after.written = after.written || state_.written;
              after.in_flight = after.in_flight || state_.in_flight;
            }
            state_ = after;
          });
      if (!state_.written || !is_barrier(body[i])) continue;
      state_.written = false;
      const Stmt fence{ProxyFence{}, body[i].loc, body[i].manual_sync};
      body.insert(body.begin() + static_cast<std::ptrdiff_t>(i), fence);
      ++i;
    }
  }

 private:
  struct State {
    bool written = false;    // this thread wrote an operand since its last fence
    bool in_flight = false;  // copies into an operand may be in flight
  };

  static bool is_barrier(const Stmt& stmt) {
    return any_order(stmt, [](const Order& order) {
      return order.kind == Order::Kind::barrier && order.group >= Group::role;
    });
  }

  void look(const Stmt& stmt) {
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      const Array& array = *effect.access.array;
      const bool is_operand =
          (array.space == ArraySpace::cluster) ||
          (array.space == ArraySpace::shared &&
           std::any_of(operands_.begin(), operands_.end(),
                       [&](const ArrayRef& operand) { return overlap(*operand, array); }));
      if (!effect.writes || effect.proxy != Proxy::generic || !is_operand) return;
      (effect.in_flight ? state_.in_flight : state_.written) = true;
    });
    if (has_order(stmt, Order::Kind::await) && state_.in_flight) state_.written = true;
    if (has_order(stmt, Order::Kind::proxy_fence)) state_.written = false;
  }

  std::vector<ArrayRef> operands_;
  State state_;
};

}  // namespace

void fence_proxies(Program& program) {
  ProxyFences fences(program);
  if (fences.any()) fences.place(program.body);
}

}  // namespace tessera::codegen
