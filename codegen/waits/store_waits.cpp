#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "codegen/analysis/footprint.h"
#include "codegen/thread_ir/walk.h"
#include "codegen/waits/place_waits.h"

namespace tessera::codegen {
namespace {

constexpr int kOpen = -1;         // not committed
constexpr int kMostPending = 64;  // older groups count as this old

/// By what a store in flight uses: the fewest commits since its own.
template <class Key>
using Ages = std::map<Key, int>;

template <class Key>
void merge(Ages<Key>& into, const Ages<Key>& other) {
  for (const auto& [key, age] : other) {
    int& known = into.try_emplace(key, age).first->second;
    known = std::min(known, age);
  }
}
template <class Key>
void commit(Ages<Key>& ages) {
  for (auto& [key, age] : ages) age = std::min(age + 1, kMostPending);
}
template <class Key>
void await(Ages<Key>& ages, int pending) {
  std::erase_if(ages, [&](const auto& entry) { return entry.second >= pending; });
}

/// Stores in flight.
struct InFlight {
  Ages<const Array*> sources;  // not read yet
  Ages<const Array*> targets;  // not in memory yet

  bool operator==(const InFlight&) const = default;
  void merge_with(const InFlight& other) {
    merge(sources, other.sources);
    merge(targets, other.targets);
  }
};

bool is_of_stores(const Stmt& stmt) {
  return std::holds_alternative<TensorStore>(stmt.node) ||
         any_order(stmt, [](const Order& order) { return order.work == Work::stores; });
}
/// The wait for stores that the statement is; null if it is something else.
template <class StmtType>
auto* wait_of(StmtType& stmt) {
  auto* const wait = std::get_if<Await>(&stmt.node);
  return wait != nullptr && wait->work == Work::stores ? wait : nullptr;
}

class StoreWaits {
 public:
  explicit StoreWaits(Program& program) : program_(program) {
    walk(program.body, [&](Stmt& stmt) {
      any_ = any_ || std::holds_alternative<TensorStore>(stmt.node);
      has_fences_ = has_fences_ || has_order(stmt, Order::Kind::fence);
      for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
        if (effect.proxy == Proxy::generic) accessed_.insert(effect.access.array.get());
      });
    });
  }

  void run() {
    if (!any_) return;
    place(program_.body);
    drain(program_.body);
  }

 private:
  struct Wait {
    int pending = INT_MAX;
    bool of_reads = true;

    void add(int age, bool reads) {
      pending = std::min(pending, age);
      of_reads = of_reads && reads;
    }
    explicit operator bool() const { return pending != INT_MAX; }
  };

  void place(Body& body) {
    for (size_t i = 0; i < body.size(); ++i) {
      if (const Wait wait = wait_before(body[i])) {
        await(wait.pending, wait.of_reads);
        Await* const before = i > 0 ? wait_of(body[i - 1]) : nullptr;
        if (before != nullptr) {  // of an earlier visit
          before->pending = std::min(before->pending, wait.pending);
          before->of_reads = before->of_reads && wait.of_reads;
        } else {
          const auto at = body.begin() + static_cast<std::ptrdiff_t>(i);
          body.insert(at, {Await{Work::stores, wait.pending, wait.of_reads}, body[i].loc});
          ++i;
        }
      }
      take(body[i]);
    }
  }

  void take(Stmt& stmt) {
    if (const auto* store = std::get_if<TensorStore>(&stmt.node)) {
      now_.sources[store->from.array.get()] = kOpen;
      now_.targets[store->to.array.get()] = kOpen;
    } else if (has_order(stmt, Order::Kind::commit, Work::stores)) {
      commit(now_.sources);
      commit(now_.targets);
    } else if (const Await* wait = wait_of(stmt)) {
      await(wait->pending, wait->of_reads);
    }
    by_structure(
        stmt, [&](For& loop) { take_loop(loop); },
        [&](If& branch) {
          const InFlight before = now_;
          place(branch.then);
          const InFlight then = std::exchange(now_, before);
          place(branch.otherwise);
          now_.merge_with(then);
        },
        [&](RoleBodies& bodies) {
          for (RoleBodies::Role& role : bodies.roles) {
            now_ = {};
            place(role.body);
            drain(role.body);
          }
          now_ = {};
        });
  }

  /// Rounds see what earlier ones leave; ages only fall, and a wait that stands stays.
  void take_loop(For& loop) {
    InFlight entry = now_;
    for (;;) {
      place(loop.body);
      InFlight next = entry;
      next.merge_with(now_);
      now_ = next;
      if (next == entry) return;
      entry = std::move(next);
    }
  }

  /// The wait that has to stand before the statement. One that holds waits or stores is looked into instead.
  Wait wait_before(const Stmt& stmt) const {
    Wait wait;
    if (now_.sources.empty() && now_.targets.empty()) return wait;
    if (std::holds_alternative<RoleBodies>(stmt.node)) {
      // Its issuing thread belongs to a role then.
      all(now_.sources, true, wait);
      all(now_.targets, false, wait);
      return wait;
    }
    look(stmt, wait);
    if (any_in(stmt, is_of_stores)) return wait;
    for_each_body(
        stmt, [&](const Body& body) { walk(body, [&](const Stmt& inner) { look(inner, wait); }); });
    return wait;
  }

  void look(const Stmt& stmt, Wait& wait) const {
    if (stmt.manual_sync) return;
    if (const auto* arrive = std::get_if<MbarrierArrive>(&stmt.node)) look(*arrive, wait);
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      const Array& array = *effect.access.array;
      if (array.space == ArraySpace::shared && effect.writes) {
        for (const auto& [source, age] : now_.sources) {
          if (source == &array || overlap(*source, array)) wait.add(age, true);
        }
      }
      const auto target = now_.targets.find(&array);
      if (target != now_.targets.end() && effect.proxy == Proxy::generic) {
        wait.add(target->second, false);
      }
    });
    any_order(stmt, [&](const Order& order) {
      look(order, wait);
      return false;
    });
  }

  /// Whoever fills the stage next writes it.
  void look(const MbarrierArrive& arrive, Wait& wait) const {
    if (arrive.at.array->ring_part != Array::RingPart::empty) return;
    for (const auto& [source, age] : now_.sources) {
      if (source->ring == arrive.at.array->ring) wait.add(age, true);
    }
  }

  void look(const Order& order, Wait& wait) const {
    switch (order.kind) {
      case Order::Kind::leave:
        return all(now_.sources, true, wait);
      case Order::Kind::fence:
      case Order::Kind::next_kernel:
        return all(now_.targets, false, wait);
      case Order::Kind::barrier:
      case Order::Kind::arrive:
        for (const auto& [target, age] : now_.targets) {
          if (has_fences_ || accessed_.contains(target)) wait.add(age, false);
        }
        return;
      default:
        return;
    }
  }

  static void all(const Ages<const Array*>& ages, bool reads, Wait& wait) {
    for (const auto& [array, age] : ages) wait.add(age, reads);
  }

  void await(int pending, bool of_reads) {
    codegen::await(now_.sources, pending);
    if (!of_reads) codegen::await(now_.targets, pending);
  }

  /// Nothing is read after the end of `body`.
  void drain(Body& body) {
    if (now_.sources.empty()) return;
    Wait wait;
    all(now_.sources, true, wait);
    body.push_back({Await{Work::stores, wait.pending, true}, body.back().loc});
    await(wait.pending, true);
  }

  Program& program_;
  InFlight now_;
  bool any_ = false, has_fences_ = false;
  std::set<const Array*> accessed_;  // by threads
};

}  // namespace

void place_store_waits(Program& program) {
  StoreWaits(program).run();
}

}  // namespace tessera::codegen
