#include "codegen/passes/tile_uses.h"

namespace tessera::codegen {
namespace {

struct Uses {
  const BufferFn& fn;

  void operator()(const ir::Let&) const {}
  void operator()(const ir::ElementLoad& s) const { fn(s.buffer, false); }
  void operator()(const ir::ElementStore& s) const { fn(s.buffer, true); }
  void operator()(const ir::Atomic& s) const { fn(s.buffer, true); }
  void operator()(const ir::Copy& s) const {
    fn(s.from.buffer, false);
    fn(s.to.buffer, true);
  }
  void operator()(const ir::Fill& s) const { fn(s.to.buffer, true); }
  void operator()(const ir::Reduce& s) const {
    fn(s.from.buffer, false);
    fn(s.to.buffer, true);
  }
  void operator()(const ir::ReducerInit& s) const { fn(s.reducer, true); }
  void operator()(const ir::ReducerUpdate& s) const { fn(s.reducer, true); }
  void operator()(const ir::ReducerFinalize& s) const {
    fn(s.reducer, true);
    if (s.to) fn(s.to, true);
  }
  void operator()(const ir::Gemm& s) const {
    fn(s.a.buffer, false);
    fn(s.b.buffer, false);
    fn(s.c.buffer, true);
  }
  void operator()(const ir::Loop& s) const { for_each_use(s.body, fn); }
  void operator()(const ir::If& s) const {
    for_each_use(s.then, fn);
    for_each_use(s.otherwise, fn);
  }
  void operator()(const ir::Sync&) const {}
  void operator()(const ir::Collective&) const {}
  void operator()(const ir::Assume&) const {}
  void operator()(const ir::Present&) const {}
  // Other blocks may do anything with it.
  void operator()(const ir::Pointer& s) const {
    if (s.buffer->alias_of) fn(s.buffer->alias_of, true);
  }
  void operator()(const ir::Assert&) const {}
  void operator()(const ir::Print&) const {}
  void operator()(const ir::Dependency&) const {}
  void operator()(const ir::ExternCall&) const {}
  void operator()(const ir::AsyncCommit&) const {}
  void operator()(const ir::AsyncWait&) const {}
  void operator()(const ir::Return&) const {}
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
  void operator()(ir::Return&) const {}
};

}  // namespace

void for_each_use(const ir::Stmt& stmt, const BufferFn& fn) {
  std::visit(Uses{fn}, stmt.node);
}

void for_each_use(const ir::Body& body, const BufferFn& fn) {
  for (const ir::Stmt& stmt : body) for_each_use(stmt, fn);
}

void move_buffers(ir::Body& body, const BufferMove& move) {
  for (ir::Stmt& stmt : body) std::visit(Mover{move}, stmt.node);
}

}  // namespace tessera::codegen
