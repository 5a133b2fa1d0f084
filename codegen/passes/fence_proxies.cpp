#include "codegen/passes/fence_proxies.h"

#include <algorithm>
#include <set>
#include <utility>
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
      const auto* const store = std::get_if<TensorStore>(&stmt.node);
      if (store == nullptr) return;
      // Those who take from a ring fence after their wait.
      if (store->from.array->ring < 0) sources_.push_back(store->from.array);
      targets_.insert(store->to.array.get());
    });
  }
  bool any() const { return !operands_.empty() || !targets_.empty(); }

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
            state_.merge(then);
          },
          [&](RoleBodies& bodies) {
            const State before = state_;
            State after;
            for (RoleBodies::Role& role : bodies.roles) {
              state_ = before;
              place(role.body);
              after.merge(state_);
            }
            state_ = after;
          });
      if (!is_due(body[i])) continue;
      const Stmt fence{Fence{state_.written_target ? Fence::Of::global : Fence::Of::shared},
                       body[i].loc, body[i].manual_sync};
      state_.fence();
      body.insert(body.begin() + static_cast<std::ptrdiff_t>(i), fence);
      ++i;
    }
  }

 private:
  /// The writes of this thread since its last fence.
  struct State {
    bool written = false;         // an operand that tensor cores read
    bool written_source = false;  // a tile that a tensor store reads
    bool written_target = false;  // a tensor that one writes
    bool in_flight = false;       // copies into an operand may be in flight
    bool in_flight_source = false;

    void merge(const State& other) {
      written = written || other.written;
      written_source = written_source || other.written_source;
      written_target = written_target || other.written_target;
      in_flight = in_flight || other.in_flight;
      in_flight_source = in_flight_source || other.in_flight_source;
    }
    void fence() { written = written_source = written_target = false; }
  };

  /// Several warps read an operand. One warp reads what a tensor store takes: its barrier may be all that orders them.
  bool is_due(const Stmt& stmt) const {
    const bool for_store = state_.written_source || state_.written_target;
    return any_order(stmt, [&](const Order& order) {
      return order.kind == Order::Kind::barrier &&
             (order.group >= Group::role ? state_.written || for_store
                                         : order.group == Group::warp && for_store);
    });
  }

  static bool is_among(const std::vector<ArrayRef>& arrays, const Array& array) {
    return array.space == ArraySpace::shared &&
           std::any_of(arrays.begin(), arrays.end(),
                       [&](const ArrayRef& other) { return overlap(*other, array); });
  }

  void look(const Stmt& stmt) {
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      if (!effect.writes || effect.proxy != Proxy::generic) return;
      const Array& array = *effect.access.array;
      const bool is_of_cluster = array.space == ArraySpace::cluster;
      if (is_of_cluster ? !operands_.empty() : is_among(operands_, array)) {
        (effect.in_flight ? state_.in_flight : state_.written) = true;
      }
      if (is_of_cluster ? !sources_.empty() : is_among(sources_, array)) {
        (effect.in_flight ? state_.in_flight_source : state_.written_source) = true;
      }
      state_.written_target = state_.written_target || targets_.contains(&array);
    });
    if (has_order(stmt, Order::Kind::await, Work::copies)) {
      state_.written = state_.written || state_.in_flight;
      state_.written_source = state_.written_source || state_.in_flight_source;
    }
    const auto* const fence = std::get_if<Fence>(&stmt.node);
    if (fence == nullptr || fence->of == Fence::Of::registers) return;
    const bool target = state_.written_target && fence->of != Fence::Of::global;
    state_.fence();
    state_.written_target = target;
  }

  std::vector<ArrayRef> operands_, sources_;
  std::set<const Array*> targets_;
  State state_;
};

}  // namespace

void fence_proxies(Program& program) {
  ProxyFences fences(program);
  if (fences.any()) fences.place(program.body);
}

}  // namespace tessera::codegen
