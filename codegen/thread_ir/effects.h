#pragma once
// What each statement of the thread IR does, described once. Passes and analyses ask here instead of
// listing kinds of statements: a new kind does not compile until it is described in effects.cpp, and
// then every pass orders, keeps and counts it.

#include <type_traits>
#include <utility>

#include "codegen/order.h"
#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// The path by which an access reaches shared memory. Only a proxy fence orders one after the other.
enum class Proxy : uint8_t { generic, async };

/// One access to memory, or to one element of a register array.
struct MemoryEffect {
  const Access& access;
  bool writes = false;
  bool atomic = false;      // reads and writes in one indivisible step
  bool in_flight = false;   // goes on after the statement, until a wait
  bool is_grouped = false;  // in flight: until a wait of this thread for its group, not an mbarrier
  Proxy proxy = Proxy::generic;
  Group by = Group::thread;  // who may touch the elements that one thread names
  const SharedMatrix* matrix =
      nullptr;                      // of which `access` is the beginning; null: the access is all
  const TensorCopy* box = nullptr;  // the same
};

/// What becomes of the registers that a statement reads.
enum class RegisterUse : uint8_t {
  moved,       // their bits go elsewhere as they are
  converted,   // to another dtype, if the two differ
  multiplied,  // an operand of a matrix product
  computed,    // any other arithmetic
};

/// `width` consecutive elements of a register array.
struct RegisterEffect {
  const Slice& slice;
  int64_t width = 1;
  bool reads = false, writes = false;
  RegisterUse use = RegisterUse::computed;  // of what is read
};

/// Receives the effects of one statement, in the order of its fields. A receiver overrides what it asks
/// about. Bodies are named by `body`; what the statements in them do is theirs.
class EffectReceiver {
 public:
  virtual ~EffectReceiver() = default;
  virtual void memory(const MemoryEffect&) {}
  virtual void registers(const RegisterEffect&) {}
  /// An expression that the statement evaluates itself. Those of accesses (offset, guard) and slices
  /// (base) are part of these.
  virtual void evaluates(const Expr&) {}
  /// The same, but only the checked executor evaluates it.
  virtual void checks(const Expr&) {}
  /// A variable that has a value from here to the end of the body, in the body of a loop its index.
  /// `value`: what it stands for; null unless it is a Let.
  virtual void binds(const VarRef&, const Expr* value) { static_cast<void>(value); }
  /// An array that begins here; `zeroed`: its registers are written.
  virtual void declares(const ArrayRef&, bool zeroed) { static_cast<void>(zeroed); }
  virtual void orders(const Order&) {}
  /// Something that the host or the author's own text sees, beside memory: it stays where it is.
  virtual void observed() {}
  virtual void calls(const ir::ExternFunction&) {}
  /// `repeats`: it may run more than once.
  virtual void body(const Body&, bool repeats) { static_cast<void>(repeats); }
};

/// Tells `out` what `stmt` does.
///
///   effects({WarpBarrier{}}, out);  // out.orders({Order::Kind::barrier, Group::warp})
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

/// Calls fn(access, writes) for the accesses that a statement makes itself; `Access&` of a statement that
/// is not const.
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

/// Calls fn(const Expr&) for all that a thread of the GPU evaluates.
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

/// True if a statement itself, not one inside it, has an Order for which `holds` is true.
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
inline bool has_order(const Stmt& stmt, const Order& wanted) {
  return any_order(stmt, [&](const Order& order) { return order == wanted; });
}

/// True if the statement does more than bind variables: it writes, orders, is observed or has a body.
bool outlives_its_values(const Stmt& stmt);

/// True if the statement starts accesses that go through the async proxy.
bool uses_async_proxy(const Stmt& stmt);
/// How many groups of accesses may be in flight after the statement, if it waits for them; else 0.
int most_in_flight(const Stmt& stmt);

/// True if a body inside the statement may run more than once: a loop.
bool repeats(const Stmt& stmt);

/// Calls fn(body) for each body inside a statement, not for those deeper down; `Body&` of a statement
/// that is not const.
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
