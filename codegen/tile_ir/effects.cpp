#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

/// One function per kind of statement and no other: what has none here does not compile.
class TileDescription {
 public:
  explicit TileDescription(TileEffectReceiver& out) : out_(out) {}

  void operator()(const ir::Let& let) const {
    out_.evaluates(let.value);
    out_.binds(let.var, &let.value);
  }
  void operator()(const ir::ElementLoad& load) const {
    element(load.buffer, false, load.indices, load.terms);
    out_.binds(load.var, nullptr);
  }
  void operator()(const ir::ElementStore& store) const {
    element(store.buffer, true, store.indices, store.terms);
    out_.evaluates(store.value);
  }
  void operator()(const ir::Atomic& atomic) const {
    element(atomic.buffer, true, atomic.indices, atomic.terms);
    evaluate(atomic.value);
    evaluate(atomic.compare);
    if (atomic.old) {
      out_.binds(atomic.old, nullptr);
      out_.happens_once();
    }
    evaluate(atomic.until);
    if (atomic.order == ir::MemoryOrder::acq_rel) order(Order::Kind::fence, Group::thread);
  }
  void operator()(const ir::Copy& copy) const {
    region(copy.from, false);
    region(copy.to, true);
    evaluate(copy.outside);
  }
  void operator()(const ir::Fill& fill) const {
    region(fill.to, true);
    out_.evaluates(fill.value);
  }
  void operator()(const ir::Reduce& reduce) const {
    region(reduce.from, false);
    region(reduce.to, true);
    order(Order::Kind::exchange, Group::block);
  }
  void operator()(const ir::ReducerInit& init) const { out_.uses(init.reducer, true); }
  void operator()(const ir::ReducerUpdate& update) const {
    element(update.reducer, true, update.indices, {});
    out_.evaluates(update.value);
  }
  void operator()(const ir::ReducerFinalize& finalize) const {
    out_.uses(finalize.reducer, true);
    if (finalize.to) out_.uses(finalize.to, true);
    evaluate(finalize.start);
    if (finalize.value) out_.binds(finalize.value, nullptr);
    order(Order::Kind::exchange, Group::block);
  }
  void operator()(const ir::Gemm& gemm) const {
    region(gemm.a, false);
    region(gemm.b, false);
    region(gemm.c, true);
    order(Order::Kind::converge, Group::block);
  }
  void operator()(const ir::Loop& loop) const {
    out_.evaluates(loop.begin);
    for (const ir::Expr& extent : loop.extents) out_.evaluates(extent);
    out_.evaluates(loop.step);
    for (const ir::VarRef& var : loop.vars) out_.binds(var, nullptr);
    out_.body(loop.body, true);
  }
  void operator()(const ir::If& branch) const {
    out_.evaluates(branch.condition);
    out_.body(branch.then, false);
    out_.body(branch.otherwise, false);
  }
  void operator()(const ir::Sync& sync) const {
    switch (sync.kind) {
      case ir::SyncKind::warp:
        return order(Order::Kind::barrier, Group::warp);
      case ir::SyncKind::block:
        return order(Order::Kind::barrier, Group::block);
      case ir::SyncKind::cluster:
        return order(Order::Kind::barrier, Group::cluster);
      case ir::SyncKind::grid:
        return order(Order::Kind::barrier, Group::grid);
    }
  }
  void operator()(const ir::Collective& collective) const {
    for (const ir::Expr& arg : collective.args) out_.evaluates(arg);
    out_.binds(collective.var, nullptr);
    order(Order::Kind::exchange, Group::warp);
  }
  void operator()(const ir::Assume& assume) const { out_.evaluates(assume.condition); }
  void operator()(const ir::Present& present) const { out_.binds(present.var, nullptr); }
  void operator()(const ir::Pointer& pointer) const {
    evaluate(pointer.buffer->address);
    evaluate(pointer.buffer->map_row);
    if (pointer.buffer->map) out_.uses(pointer.buffer->map, true);
    evaluate(pointer.buffer->block);
    // Other blocks may do anything with it.
    if (pointer.buffer->alias_of) out_.uses(pointer.buffer->alias_of, true);
  }
  void operator()(const ir::Assert& check) const { out_.evaluates(check.condition); }
  void operator()(const ir::Print& print) const {
    for (const ir::Expr& arg : print.args) out_.evaluates(arg);
  }
  void operator()(const ir::Dependency& dependency) const {
    order(dependency.kind == ir::DependencyKind::wait ? Order::Kind::previous_kernel
                                                      : Order::Kind::next_kernel,
          Group::grid);
  }
  void operator()(const ir::ExternCall& call) const {
    for (const ir::Expr& arg : call.args) out_.evaluates(arg);
    if (call.var) out_.binds(call.var, nullptr);
    if (call.function->synchronises) {
      order(Order::Kind::barrier, Group::block);
    } else if (!call.function->pure) {
      out_.happens_once();
    }
  }
  void operator()(const ir::AsyncCommit&) const { order(Order::Kind::commit, Group::thread); }
  void operator()(const ir::AsyncWait& wait) const {
    out_.orders({Order::Kind::await, Group::thread, wait.pending});
  }
  void operator()(const ir::StoreWait&) const {
    out_.orders({Order::Kind::await, Group::thread, 0, Work::stores});
  }
  void operator()(const ir::Break& leave) const { out_.evaluates(leave.condition); }
  void operator()(const ir::Return& leave) const {
    out_.evaluates(leave.condition);
    order(Order::Kind::leave, Group::thread);
  }
  void operator()(const ir::Roles& roles) const {
    order(Order::Kind::barrier, Group::block);
    for (const ir::Roles::Role& role : roles.roles) {
      out_.binds(role.thread, nullptr);
      out_.body(role.body, false);
    }
  }
  void operator()(const ir::RingTurn& turn) const {
    out_.binds(turn.stage, nullptr);
    order(Order::Kind::barrier, Group::role);
    out_.body(turn.body, false);
  }

 private:
  void order(Order::Kind kind, Group group) const { out_.orders({kind, group}); }
  void evaluate(const ir::Expr& e) const {
    if (e) out_.evaluates(e);
  }
  void terms(const ir::AccessTerms& said) const {
    for (const ir::TileIndex& tile : said.tile_indices) {
      out_.evaluates(tile.index);
      out_.evaluates(tile.begin);
      out_.evaluates(tile.extent);
    }
  }
  void element(const ir::BufferRef& buffer, bool writes, const std::vector<ir::Expr>& indices,
               const ir::AccessTerms& said) const {
    out_.uses(buffer, writes);
    for (const ir::Expr& index : indices) out_.evaluates(index);
    terms(said);
  }
  void region(const ir::Region& region, bool writes) const {
    out_.uses(region.buffer, writes);
    for (const ir::Expr& offset : region.offsets) out_.evaluates(offset);
    for (const ir::Expr& extent : region.extents) evaluate(extent);
    terms(region.terms);
  }

  TileEffectReceiver& out_;
};

struct Mover {
  const BufferMove& move;

  void operator()(ir::Let&) const {}
  void operator()(ir::ElementLoad& s) const { move.element(s.buffer, s.indices); }
  void operator()(ir::ElementStore& s) const { move.element(s.buffer, s.indices); }
  void operator()(ir::Atomic& s) const { move.element(s.buffer, s.indices); }
  void operator()(ir::Copy& s) const {
    move.region(s.from);
    move.region(s.to);
  }
  void operator()(ir::Fill& s) const { move.region(s.to); }
  void operator()(ir::Reduce& s) const {
    move.region(s.from);
    move.region(s.to);
  }
  void operator()(ir::Gemm& s) const {
    move.region(s.a);
    move.region(s.b);
    move.region(s.c);
  }
  void operator()(ir::Loop& s) const { move_buffers(s.body, move); }
  void operator()(ir::If& s) const {
    move_buffers(s.then, move);
    move_buffers(s.otherwise, move);
  }
  void operator()(ir::Sync&) const {}
  void operator()(ir::Collective&) const {}
  // Reducers are fragments, which are no tiles of memory.
  void operator()(ir::ReducerInit&) const {}
  void operator()(ir::ReducerUpdate&) const {}
  void operator()(ir::ReducerFinalize&) const {}
  void operator()(ir::Assume&) const {}
  void operator()(ir::Present&) const {}
  void operator()(ir::Pointer&) const {}
  void operator()(ir::Assert&) const {}
  void operator()(ir::Print&) const {}
  void operator()(ir::Dependency&) const {}
  void operator()(ir::ExternCall&) const {}
  void operator()(ir::AsyncCommit&) const {}
  void operator()(ir::AsyncWait&) const {}
  void operator()(ir::StoreWait&) const {}
  void operator()(ir::Break&) const {}
  void operator()(ir::Return&) const {}
  void operator()(ir::Roles& s) const {
    for (ir::Roles::Role& role : s.roles) move_buffers(role.body, move);
  }
  void operator()(ir::RingTurn& s) const { move_buffers(s.body, move); }
};

}  // namespace

void effects(const ir::Stmt& stmt, TileEffectReceiver& out) {
  std::visit(TileDescription(out), stmt.node);
}

void for_each_use(const ir::Stmt& stmt, const BufferFn& fn) {
  struct Receiver : TileEffectReceiver {
    explicit Receiver(const BufferFn& f) : call(f) {}
    void uses(const ir::BufferRef& buffer, bool writes) override { call(buffer, writes); }
    void body(const ir::Body& inner, bool) override { for_each_use(inner, call); }
    const BufferFn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

void for_each_use(const ir::Body& body, const BufferFn& fn) {
  for (const ir::Stmt& stmt : body) for_each_use(stmt, fn);
}

bool has_order(const ir::Stmt& stmt, Order::Kind kind, Work work) {
  struct Receiver : TileEffectReceiver {
    Receiver(Order::Kind k, Work w) : kind(k), work(w) {}
    void orders(const Order& order) override {
      found = found || (order.kind == kind && order.work == work);
    }
    const Order::Kind kind;
    const Work work;
    bool found = false;
  } receiver(kind, work);
  effects(stmt, receiver);
  return receiver.found;
}

void move_buffers(ir::Stmt& stmt, const BufferMove& move) {
  std::visit(Mover{move}, stmt.node);
}

void move_buffers(ir::Body& body, const BufferMove& move) {
  for (ir::Stmt& stmt : body) move_buffers(stmt, move);
}

}  // namespace tessera::codegen
