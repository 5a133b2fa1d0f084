#pragma once
// The effects of each thread-IR statement, described once. Passes and analyses query them instead of
// listing kinds of statements: a new kind does not compile until effects.cpp describes it, and then
// every pass orders, keeps and counts it.

#include <type_traits>
#include <utility>

#include "codegen/order.h"
#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// The path by which an access reaches shared memory. Only a proxy fence orders accesses of
/// different proxies.
enum class Proxy : uint8_t { generic, async };

/// One access to memory, or to one element of a register array.
struct MemoryEffect {
  const Access& access;
  bool writes = false;
  bool atomic = false;      // reads and writes in one indivisible step
  bool in_flight = false;   // continues after the statement, until a wait
  bool is_grouped = false;  // in flight until a wait of this thread for its group, not an mbarrier
  Proxy proxy = Proxy::generic;
  Group by = Group::thread;  // who may access the elements that one thread names
  bool of_cluster = false;   // in other blocks of the cluster, too
  const SharedMatrix* matrix =
      nullptr;                     // of which `access` is the beginning; null: the access is all
  const TensorMap* box = nullptr;  // the same
};

/// How a statement uses the registers that it reads.
enum class RegisterUse : uint8_t {
  moved,       // their bits are copied unchanged
  converted,   // to another dtype, if the two differ
  multiplied,  // an operand of a matrix product
  computed,    // any other arithmetic
};

/// `width` consecutive elements of a register array.
struct RegisterEffect {
  const Slice& slice;
  int64_t width = 1;
  bool reads = false, writes = false;
  RegisterUse use = RegisterUse::computed;  // of the registers read
};

/// Receives the effects of one statement, in the order of its fields. A receiver overrides the effects
/// that it needs. `body` names inner bodies; the effects of their statements are not reported.
class EffectReceiver {
 public:
  virtual ~EffectReceiver() = default;
  virtual void memory(const MemoryEffect&) {}
  virtual void registers(const RegisterEffect&) {}
  /// An expression that the statement itself evaluates, including those of accesses (offset, guard)
  /// and slices (base).
  virtual void evaluates(const Expr&) {}
  /// The same, but only the checked executor evaluates it.
  virtual void checks(const Expr&) {}
  /// A variable defined from here to the end of the body; of a loop, its index in the body. `value`
  /// is the value of a Let, else null.
  virtual void binds(const VarRef&, const Expr* value) { static_cast<void>(value); }
  /// An array defined here; `zeroed`: its registers are written.
  virtual void declares(const ArrayRef&, bool zeroed) { static_cast<void>(zeroed); }
  virtual void orders(const Order&) {}
  /// An effect other than memory that the host or the author's code observes: the statement stays
  /// in place.
  virtual void observed() {}
  virtual void calls(const ir::ExternFunction&) {}
  /// `repeats`: it may run more than once.
  virtual void body(const Body&, bool repeats) { static_cast<void>(repeats); }
};

/// Reports the effects of `stmt` to `out`.
///
///   effects({Barrier{}}, out);  // out.orders({Order::Kind::barrier, Group::block})
void effects(const Stmt& stmt, EffectReceiver& out);

// ---- one kind of effect at a time

/// Calls fn(const MemoryEffect&).
template <class Fn>
void for_each_memory_effect(const Stmt& stmt, const Fn& fn) {
  struct Receiver : EffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void memory(const MemoryEffect& effect) override { call(effect); }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

/// Calls fn(access, writes) for the accesses that a statement makes itself; with `Access&` if the
/// statement is not const.
template <class StmtType, class Fn>
void for_each_access(StmtType& stmt, const Fn& fn) {
  for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
    if constexpr (std::is_const_v<StmtType>) {
      fn(effect.access, effect.writes);
    } else {  // a part of `stmt`, which is the caller's to change
      fn(const_cast<Access&>(effect.access), effect.writes);
    }
  });
}

/// Calls fn(const RegisterEffect&).
template <class Fn>
void for_each_register_effect(const Stmt& stmt, const Fn& fn) {
  struct Receiver : EffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void registers(const RegisterEffect& effect) override { call(effect); }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

/// Calls fn(const ArrayRef&) for every array that a statement accesses.
template <class Fn>
void for_each_array(const Stmt& stmt, const Fn& fn) {
  struct Receiver : EffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void memory(const MemoryEffect& effect) override { call(effect.access.array); }
    void registers(const RegisterEffect& effect) override { call(effect.slice.array); }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

/// Calls fn(const Expr&) for all expressions that a GPU thread evaluates.
template <class Fn>
void for_each_expression(const Stmt& stmt, const Fn& fn) {
  struct Receiver : EffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void memory(const MemoryEffect& effect) override {
      call(effect.access.offset);
      if (effect.access.guard) call(effect.access.guard);
    }
    void registers(const RegisterEffect& effect) override { call(effect.slice.base); }
    void evaluates(const Expr& e) override { call(e); }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

/// Calls fn(var, value) for the variables that a statement binds; see EffectReceiver::binds.
template <class Fn>
void for_each_binding(const Stmt& stmt, const Fn& fn) {
  struct Receiver : EffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void binds(const VarRef& var, const Expr* value) override { call(var, value); }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

/// Calls fn(const ArrayRef&) for the array that a statement declares.
template <class Fn>
void for_each_declaration(const Stmt& stmt, const Fn& fn) {
  struct Receiver : EffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void declares(const ArrayRef& array, bool) override { call(array); }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

/// Calls fn(const ir::ExternFunction&) for the function that a statement calls.
template <class Fn>
void for_each_call(const Stmt& stmt, const Fn& fn) {
  struct Receiver : EffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void calls(const ir::ExternFunction& function) override { call(function); }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

/// True if the statement itself, not one inside it, has an Order for which `holds` is true.
template <class Predicate>
bool any_order(const Stmt& stmt, const Predicate& holds) {
  struct Receiver : EffectReceiver {
    explicit Receiver(const Predicate& p) : test(p) {}
    void orders(const Order& order) override { found = found || test(order); }
    const Predicate& test;
    bool found = false;
  } receiver(holds);
  effects(stmt, receiver);
  return receiver.found;
}
inline bool has_order(const Stmt& stmt, Order::Kind kind) {
  return any_order(stmt, [&](const Order& order) { return order.kind == kind; });
}
/// True if the statement commits, or awaits, groups of that work.
inline bool has_order(const Stmt& stmt, Order::Kind kind, Work work) {
  return any_order(stmt,
                   [&](const Order& order) { return order.kind == kind && order.work == work; });
}
inline bool has_order(const Stmt& stmt, const Order& wanted) {
  return any_order(stmt, [&](const Order& order) { return order == wanted; });
}

/// True if the statement does more than bind variables: it writes, orders, is observed or has a body.
bool outlives_its_values(const Stmt& stmt);

/// True if the statement starts accesses that go through the async proxy.
bool uses_async_proxy(const Stmt& stmt);
/// The number of groups of `work` that may be in flight after the statement if it waits for such; else 0.
int most_in_flight(const Stmt& stmt, Work work = Work::copies);

/// True if a body inside the statement may run more than once: a loop.
bool repeats(const Stmt& stmt);

/// Calls fn(body) for each direct body of a statement, with `Body&` if the statement is not const.
template <class StmtType, class Fn>
requires std::is_same_v<std::remove_const_t<StmtType>, Stmt>
void for_each_body(StmtType& stmt, const Fn& fn) {
  struct Receiver : EffectReceiver {
    explicit Receiver(const Fn& f) : call(f) {}
    void body(const Body& inner, bool) override {
      if constexpr (std::is_const_v<StmtType>) {
        call(inner);
      } else {  // a part of `stmt`, which is the caller's to change
        call(const_cast<Body&>(inner));
      }
    }
    const Fn& call;
  } receiver(fn);
  effects(stmt, receiver);
}

}  // namespace tessera::codegen
