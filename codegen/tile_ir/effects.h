#pragma once
// The effects of each statement of the tile IR, described once. Passes ask here instead of listing kinds of
// statements: a new kind does not compile until it is described in effects.cpp.

#include <functional>
#include <type_traits>

#include "codegen/order.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Receives the effects of one statement. A receiver overrides the effects that it needs. `body` names
/// inner bodies; the effects of their statements are not reported.
class TileEffectReceiver {
 public:
  virtual ~TileEffectReceiver() = default;
  /// A buffer that is read or written, once per use.
  virtual void uses(const ir::BufferRef&, bool writes) { static_cast<void>(writes); }
  /// An expression that the statement evaluates, indices included.
  virtual void evaluates(const ir::Expr&) {}
  /// A variable defined from here to the end of the body; of a loop, its index in the body. `value`
  /// is the value of a Let, else null.
  virtual void binds(const ir::VarRef&, const ir::Expr* value) { static_cast<void>(value); }
  virtual void orders(const Order&) {}
  /// A side effect other than a store that a second execution would repeat.
  virtual void happens_once() {}
  /// `repeats`: it may run more than once.
  virtual void body(const ir::Body&, bool repeats) { static_cast<void>(repeats); }
};

/// Reports the effects of `stmt` to `out`.
void effects(const ir::Stmt& stmt, TileEffectReceiver& out);

using BufferFn = std::function<void(const ir::BufferRef& buffer, bool writes)>;
/// Calls fn for each buffer that is read or written, by inner statements too, once per use.
void for_each_use(const ir::Stmt& stmt, const BufferFn& fn);
void for_each_use(const ir::Body& body, const BufferFn& fn);

/// Calls fn(const ir::Expr&) for the expressions that the statement itself evaluates.
template <class Fn>
void for_each_expression(const ir::Stmt& stmt, const Fn& fn) {
  struct Receiver : TileEffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void evaluates(const ir::Expr& e) override { call(e); }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

/// Calls fn(var, value) for the variables that the statement itself binds; see
/// TileEffectReceiver::binds.
template <class Fn>
void for_each_binding(const ir::Stmt& stmt, const Fn& fn) {
  struct Receiver : TileEffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void binds(const ir::VarRef& var, const ir::Expr* value) override { call(var, value); }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

/// True if the statement itself has an Order of this kind.
bool has_order(const ir::Stmt& stmt, Order::Kind kind, Work work = Work::copies);

/// Calls fn(body) for each body inside a statement, not for those deeper down; `ir::Body&` of a
/// statement that is not const.
template <class StmtType, class Fn>
requires std::is_same_v<std::remove_const_t<StmtType>, ir::Stmt>
void for_each_body(StmtType& stmt, const Fn& fn) {
  struct Receiver : TileEffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void body(const ir::Body& inner, bool) override {
      if constexpr (std::is_const_v<StmtType>) {
        call(inner);
      } else {  // a part of `stmt`, which is the caller's to change
        call(const_cast<ir::Body&>(inner));
      }
    }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

/// True if `holds` is true of the statement or of one inside it.
template <class Predicate>
bool any_in(const ir::Stmt& stmt, const Predicate& holds) {
  bool found = holds(stmt);
  for_each_body(stmt, [&](const ir::Body& body) {
    for (const ir::Stmt& inner : body) found = found || any_in(inner, holds);
  });
  return found;
}

/// The id of a loop in its kernel: that of its first variable, which is unique.
inline int loop_id(const ir::Loop& loop) {
  return loop.vars.front()->id;
}

/// True if the loop may end before its last round.
inline bool ends_early(const ir::Loop& loop) {
  return !loop.body.empty() && std::holds_alternative<ir::Break>(loop.body.back().node);
}

/// How a copy, or a copy of rows, is made; null for other statements.
inline const ir::CopyPlan* plan_of(const ir::Stmt& stmt) {
  if (const auto* copy = std::get_if<ir::Copy>(&stmt.node)) return &copy->plan;
  const auto* loop = std::get_if<ir::Loop>(&stmt.node);
  return loop != nullptr && loop->plan ? &*loop->plan : nullptr;
}

/// The end of a copy's loop: an element is loaded and stored.
inline const ir::ElementLoad& load_of(const ir::Loop& copy) {
  return std::get<ir::ElementLoad>(copy.body[copy.body.size() - 2].node);
}
inline const ir::ElementStore& store_of(const ir::Loop& copy) {
  return std::get<ir::ElementStore>(copy.body.back().node);
}

/// True for the loop of a copy of which each thread copies pieces in the background.
inline bool is_in_pieces(const ir::Loop& loop) {
  return loop.plan && loop.plan->engine == ir::Engine::pieces;
}
/// True if the copy engine makes the copy, not the threads one by one.
inline bool is_by_engine(const ir::CopyPlan& plan) {
  return plan.engine == ir::Engine::tensor || plan.engine == ir::Engine::bulk;
}

/// Where a copy, or a copy of rows, reads and writes.
inline const ir::BufferRef& source_of(const ir::Stmt& copy) {
  const auto* loop = std::get_if<ir::Loop>(&copy.node);
  return loop != nullptr ? load_of(*loop).buffer : std::get<ir::Copy>(copy.node).from.buffer;
}
inline const ir::BufferRef& target_of(const ir::Stmt& copy) {
  const auto* loop = std::get_if<ir::Loop>(&copy.node);
  return loop != nullptr ? store_of(*loop).buffer : std::get<ir::Copy>(copy.node).to.buffer;
}

/// The storage of a buffer: the buffer itself, or the buffer that it is a view of.
inline const ir::Buffer& storage_of(const ir::Buffer& buffer) {
  return buffer.alias_of ? *buffer.alias_of : buffer;
}

/// Identifies the memory of a buffer. Buffers with different ids share none.
inline int memory_of(const ir::Buffer& buffer) {
  constexpr int kAliased = -1;  // all tensors that may share memory count as one
  return buffer.may_alias ? kAliased : storage_of(buffer).id;
}

/// Where an element or a region of a buffer goes: `move` may change the buffer and its indices.
struct BufferMove {
  std::function<void(ir::Region&)> region;
  std::function<void(ir::BufferRef&, std::vector<ir::Expr>& indices)> element;
};
/// Rewrites each use, inner statements included.
void move_buffers(ir::Stmt& stmt, const BufferMove& move);
void move_buffers(ir::Body& body, const BufferMove& move);

}  // namespace tessera::codegen
