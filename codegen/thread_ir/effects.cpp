#include "codegen/thread_ir/effects.h"

namespace tessera::codegen {
namespace {

/// One function per kind of statement and no other: what has none here does not compile.
class ThreadDescription {
 public:
  explicit ThreadDescription(EffectReceiver& out) : out_(out) {}

  void operator()(const Let& let) const {
    out_.evaluates(let.value);
    out_.binds(let.var, &let.value);
  }
  void operator()(const Load& load) const {
    out_.memory({.access = load.from});
    slice(load.into, load.from.width, Reads::no, Writes::yes);
    if (load.var) out_.binds(load.var, nullptr);
  }
  void operator()(const Store& store) const {
    out_.memory({.access = store.to, .writes = true});
    slice(store.from, store.to.width, Reads::yes, Writes::no, RegisterUse::moved);
    evaluate(store.value);
  }
  void operator()(const Atomic& atomic) const {
    out_.memory({.access = atomic.to, .writes = true, .atomic = true});
    slice(atomic.from, atomic.to.width, Reads::yes, Writes::no);
    evaluate(atomic.value);
    evaluate(atomic.compare);
    if (atomic.old) out_.binds(atomic.old, nullptr);
    evaluate(atomic.until);
    if (atomic.order == ir::MemoryOrder::acq_rel) order(Order::Kind::fence, Group::thread);
  }
  void operator()(const Convert& convert) const {
    slice(convert.into, convert.width, Reads::no, Writes::yes);
    slice(convert.from, convert.width, Reads::yes, Writes::no, RegisterUse::converted);
  }
  void operator()(const Packed& packed) const {
    slice(packed.into, packed.width, Reads::no, Writes::yes);
    for (const Slice& arg : packed.args) slice(arg, packed.width, Reads::yes, Writes::no);
  }
  void operator()(const LoadMatrix& load) const {
    out_.memory({.access = load.from, .by = Group::warp});
    slice(load.into, load.width(), Reads::no, Writes::yes);
    order(Order::Kind::converge, Group::warp);
  }
  void operator()(const Mma& mma) const {
    const int e = mma.per_register();
    slice(mma.c, mma.sums(), mma.clears ? Reads::no : Reads::yes, Writes::yes);
    slice(mma.a, 4 * e, Reads::yes, Writes::no, RegisterUse::multiplied);
    slice(mma.b, 2 * e, Reads::yes, Writes::no, RegisterUse::multiplied);
    for (const SharedMatrix* matrix : {&mma.left, &mma.right}) {
      if (!matrix->first.array) continue;
      out_.memory(
          {.access = matrix->first, .proxy = Proxy::async, .by = Group::warp, .matrix = matrix});
    }
    order(Order::Kind::converge, mma.is_of_group() ? Group::block : Group::warp);
  }
  void operator()(const For& loop) const {
    out_.evaluates(loop.begin);
    out_.evaluates(loop.end);
    out_.evaluates(loop.step);
    out_.binds(loop.var, nullptr);
    out_.body(loop.body, true);
  }
  void operator()(const If& branch) const {
    out_.evaluates(branch.condition);
    out_.body(branch.then, false);
    out_.body(branch.otherwise, false);
  }
  void operator()(const Barrier& barrier) const {
    switch (barrier.scope) {
      case BarrierScope::warp:
        return order(Order::Kind::barrier, Group::warp);
      case BarrierScope::named:
        return order(Order::Kind::barrier, Group::role);
      case BarrierScope::named_arrive:
        return order(Order::Kind::arrive, Group::role);
      case BarrierScope::block:
        return order(Order::Kind::barrier, Group::block);
      case BarrierScope::cluster:
        return order(Order::Kind::barrier, Group::cluster);
      case BarrierScope::cluster_arrive:
        return order(Order::Kind::arrive, Group::cluster);
      case BarrierScope::cluster_wait:
        return order(Order::Kind::wait, Group::cluster);
      case BarrierScope::grid:
        return order(Order::Kind::barrier, Group::grid);
    }
  }
  void operator()(const RoleBodies& bodies) const {
    for (const RoleBodies::Role& role : bodies.roles) {
      if (role.thread) out_.binds(role.thread, nullptr);
      out_.body(role.body, false);
    }
  }
  void operator()(const Collective& collective) const {
    for (const Expr& arg : collective.args) out_.evaluates(arg);
    out_.binds(collective.var, nullptr);
    order(Order::Kind::exchange, Group::warp);
  }
  void operator()(const Comment&) const {}
  void operator()(const Declare& declare) const {
    evaluate(declare.array->address);
    evaluate(declare.array->block);
    out_.declares(declare.array, declare.zero);
  }
  void operator()(const Present& present) const { out_.binds(present.var, nullptr); }
  void operator()(const Assert& check) const {
    if (check.otherwise == Otherwise::trap) return out_.checks(check.condition);
    out_.evaluates(check.condition);
    out_.observed();
  }
  void operator()(const CheckIndices& check) const {
    for (const Expr& index : check.indices) out_.checks(index);
    for (const CheckIndices::Range& range : check.ranges) {
      out_.checks(range.index);
      out_.checks(range.begin);
      out_.checks(range.extent);
    }
  }
  void operator()(const Print& print) const {
    for (const Expr& arg : print.args) out_.evaluates(arg);
    out_.observed();
  }
  void operator()(const Dependency& dependency) const {
    order(dependency.kind == ir::DependencyKind::wait ? Order::Kind::previous_kernel
                                                      : Order::Kind::next_kernel,
          Group::grid);
  }
  void operator()(const ExternCall& call) const {
    for (const Expr& arg : call.args) out_.evaluates(arg);
    if (call.var) out_.binds(call.var, nullptr);
    out_.calls(*call.function);
    if (!call.function->pure || call.function->synchronises) out_.observed();
    if (call.function->synchronises) order(Order::Kind::barrier, Group::block);
  }
  void operator()(const AsyncCopy& copy) const {
    const bool is_grouped = copy.to.array->ring < 0;
    out_.memory({.access = copy.from, .in_flight = true, .is_grouped = is_grouped});
    out_.memory({.access = copy.to, .writes = true, .in_flight = true, .is_grouped = is_grouped});
  }
  void operator()(const Commit& commit) const {
    if (commit.work == Work::products) return order(Order::Kind::converge, Group::block);
    out_.orders({Order::Kind::commit, Group::thread, 0, commit.work});
  }
  void operator()(const Await& wait) const {
    slice(wait.sum, wait.width, Reads::yes, Writes::yes);
    slice(wait.above, wait.above_width, Reads::yes, Writes::no);
    if (wait.work == Work::products) return order(Order::Kind::converge, Group::block);
    out_.orders({Order::Kind::await, Group::thread, wait.pending, wait.work});
  }
  void operator()(const Fence& fence) const {
    slice(fence.sum, fence.width, Reads::yes, Writes::yes);
    if (fence.of == Fence::Of::registers) return order(Order::Kind::converge, Group::block);
    order(Order::Kind::proxy_fence, Group::thread);
  }
  void operator()(const Return& leave) const {
    out_.evaluates(leave.condition);
    order(Order::Kind::leave, Group::thread);
  }
  void operator()(const Break& leave) const {
    out_.evaluates(leave.condition);
    out_.observed();  // by the loop
  }
  void operator()(const MbarrierInit& init) const {
    out_.memory({.access = init.at, .writes = true});
  }
  void operator()(const MbarrierArrive& arrive) const {
    if (arrive.of_warp_at > 0) order(Order::Kind::barrier, Group::warp);
    evaluate(arrive.rank);
    change(arrive.at, arrive.rank || arrive.of_warp_at > 1);
    order(Order::Kind::arrive, Group::thread);
  }
  void operator()(const MbarrierWait& wait) const {
    change(wait.at);
    out_.evaluates(wait.phase);
    order(Order::Kind::wait, Group::thread);
  }
  void operator()(const BulkCopy& copy) const {
    const bool is_grouped = !copy.mbarrier.array;
    out_.memory({.access = copy.from,
                 .in_flight = true,
                 .is_grouped = is_grouped,
                 .proxy = Proxy::async,
                 .by = Group::warp});
    out_.memory({.access = copy.to,
                 .writes = true,
                 .in_flight = true,
                 .is_grouped = is_grouped,
                 .proxy = Proxy::async,
                 .by = Group::warp});
    if (!is_grouped) change(copy.mbarrier);
  }
  void operator()(const TensorCopy& copy) const {
    const bool is_grouped = !copy.mbarrier.array;
    for (const Expr& coordinate : copy.coordinates) out_.evaluates(coordinate);
    if (copy.map_at.array) out_.memory({.access = copy.map_at, .by = Group::warp});
    out_.memory({.access = copy.to,
                 .writes = true,
                 .in_flight = true,
                 .is_grouped = is_grouped,
                 .proxy = Proxy::async,
                 .by = Group::warp,
                 .of_cluster = copy.multicast,
                 .box = copy.map.get()});
    if (!is_grouped) change(copy.mbarrier, copy.multicast);
  }
  void operator()(const TensorStore& store) const {
    for (const Expr& coordinate : store.coordinates) out_.evaluates(coordinate);
    out_.memory({.access = store.from,
                 .in_flight = true,
                 .is_grouped = true,
                 .proxy = Proxy::async,
                 .by = Group::warp,
                 .box = store.map.get()});
    out_.memory({.access = store.to,
                 .writes = true,
                 .atomic = store.adds,
                 .in_flight = true,
                 .is_grouped = true,
                 .proxy = Proxy::async,
                 .by = Group::warp});
  }
  void operator()(const WriteMap& write) const {
    out_.evaluates(write.tensor->address);
    for (const Expr& extent : write.extents) out_.evaluates(extent);
    for (const Expr& stride : write.strides) out_.evaluates(stride);
    out_.memory({.access = write.to, .writes = true, .by = Group::warp});
    order(Order::Kind::proxy_fence, Group::thread);
  }

 private:
  enum class Reads : bool { no, yes };
  enum class Writes : bool { no, yes };

  void order(Order::Kind kind, Group group) const { out_.orders({kind, group}); }
  /// A change of an mbarrier in one indivisible step.
  void change(const Access& mbarrier, bool of_cluster = false) const {
    out_.memory({.access = mbarrier, .writes = true, .atomic = true, .of_cluster = of_cluster});
  }
  void evaluate(const Expr& e) const {
    if (e) out_.evaluates(e);
  }
  void slice(const Slice& slice, int64_t width, Reads reads, Writes writes,
             RegisterUse use = RegisterUse::computed) const {
    if (!slice.array) return;
    out_.registers({slice, width, reads == Reads::yes, writes == Writes::yes, use});
  }

  EffectReceiver& out_;
};

}  // namespace

void effects(const Stmt& stmt, EffectReceiver& out) {
  std::visit(ThreadDescription(out), stmt.node);
}

bool repeats(const Stmt& stmt) {
  struct Receiver : EffectReceiver {
    void body(const Body&, bool repeats) override { found = found || repeats; }
    bool found = false;
  } receiver;
  effects(stmt, receiver);
  return receiver.found;
}

bool outlives_its_values(const Stmt& stmt) {
  struct Receiver : EffectReceiver {
    void memory(const MemoryEffect& effect) override { found = found || effect.writes; }
    void registers(const RegisterEffect& effect) override { found = found || effect.writes; }
    void declares(const ArrayRef&, bool) override { found = true; }
    void orders(const Order&) override { found = true; }
    void observed() override { found = true; }
    void body(const Body&, bool) override { found = true; }
    bool found = false;
  } receiver;
  effects(stmt, receiver);
  return receiver.found;
}

bool uses_async_proxy(const Stmt& stmt) {
  bool found = false;
  for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
    found = found || (effect.in_flight && effect.proxy == Proxy::async);
  });
  return found;
}

int most_in_flight(const Stmt& stmt, Work work) {
  int pending = 0;
  any_order(stmt, [&](const Order& order) {
    if (order.kind == Order::Kind::await && order.work == work) pending = order.pending;
    return false;
  });
  return pending;
}

}  // namespace tessera::codegen
