#pragma once
// What the emitter must know about a whole program before it prints: which statements matter, which
// loads are printed at their only use, and which arithmetic is index arithmetic.

#include <map>
#include <set>

#include "codegen/analysis/int_range.h"
#include "codegen/thread_ir/effects.h"

namespace tessera::codegen::cuda {

/// What becomes of an expression's result.
enum class Role {
  index,    // an address, a bound, a guard: the checked executor traps an overflow
  operand,  // arithmetic goes on with it, which makes every NaN canonical
  value,    // its bits reach memory, another thread or a bitcast
};

/// The role of argument `arg` of a node that itself has role `role`.
Role argument_role(const ir::Node& node, size_t arg, Role role);

class Usage {
 public:
  explicit Usage(const Program& program);
  Usage(const Usage&) = delete;
  Usage& operator=(const Usage&) = delete;

  /// True if nothing observes the statement: its variable or array is never used, or its body is
  /// empty.
  bool is_dead(const Stmt& stmt) const { return dead_.contains(&stmt); }

  /// True if nothing but dead statements and comments are in the body.
  bool is_empty(const Body& body) const;

  /// True if some printed expression names the variable.
  bool is_used(const ir::Var& var) const { return uses_.contains(&var); }

  /// The load whose element stands for `var`: it is used once, later in the same body, and nothing
  /// between the load and the use writes that memory or synchronises. Null for every other
  /// variable.
  const Access* inlined_load(const ir::Var& var) const;

  /// The strongest role in which the variable is used.
  Role role(const ir::Var& var) const;

  /// The role of what is stored to the array: operand if only matrix products and conversions read it.
  Role store_role(const Array& to) const;

  /// True if matrix products read the register array in a loop that does not fill it. A compiler
  /// would move what fills it into that loop, to compute it again on every round.
  bool is_kept_for_loop(const Array& array) const;

  /// True if which register some access names depends on the variable.
  bool picks_register(const ir::Var& var) const { return register_picks_.contains(&var); }

  /// True if a signed sum, difference, product or negation may leave its type: it depends on memory,
  /// another thread or a scalar parameter, or what is known of indices and extents does not exclude it.
  /// An i32 index wraps where it depends on extents alone, or on loaded values under a guard. Indices
  /// made of scalar parameters, and unguarded ones of loaded values, are the author's promise: the
  /// checked executor traps their overflow.
  bool may_wrap(const Expr& e, Role role) const;

  /// What a Let binds the variable to; null if none does.
  Expr definition(const ir::Var& var) const;

  /// True if some live statement accesses the array.
  bool is_accessed(const Array& array) const { return accessed_.contains(&array); }

  /// True if the kernel waits for the one before it in the stream.
  bool waits_for_previous() const { return waits_for_previous_; }

  /// True if nobody writes the global array while the kernel runs, so that its reads may move: not
  /// above a wait for the kernel that writes it.
  bool is_constant(const Array& array) const { return array.is_constant() && !waits_for_previous_; }

  /// True if what the register array holds goes nowhere but to memory, as it is.
  bool is_only_moved(const Array& array) const { return !computed_on_.contains(&array); }

  /// True if the register array takes part in an access of more than one element.
  bool is_vector(const Array& array) const { return vectors_.contains(&array); }

 private:
  /// Notes that a guard, or an offset under one, depends on `root`.
  void mark_guarded(const Expr& root);
  /// On memory, another thread or a scalar parameter, not only on where the thread is.
  bool depends_on_data(const Expr& e) const { return depends_on(e, data_); }
  static bool depends_on(const Expr& e, const std::set<const ir::Var*>& vars);
  /// Where an expression is evaluated. No body: somewhere a load must not move to, such as a loop
  /// header.
  struct Place {
    const Body* body = nullptr;
    size_t position = 0;
  };
  struct Use {
    int count = 0;
    Role role = Role::index;
    Place place;  // of the last one seen
  };

  void mark_data(const Body& body);
  void mark_reads(const Body& body, int loops = 0);
  void mark_read(const Stmt& stmt, const RegisterEffect& effect);
  void visit(const Body& body);
  void visit(const Stmt& stmt, Place place);
  // Each kind of statement: notes what it uses, returns whether anything observes it.
  bool look(const Let& let, Place place);
  bool look(const Load& load, Place place);
  bool look(const Store& store, Place place);
  bool look(const Atomic& atomic, Place place);
  bool look(const Convert& convert, Place place);
  bool look(const Packed& packed, Place place);
  bool look(const LoadMatrix& matrices, Place place);
  bool look(const Mma& mma, Place place);
  bool look(const For& loop, Place place);
  bool look(const If& branch, Place place);
  bool look(const Collective& collective, Place place);
  bool look(const Declare& declare, Place place);
  bool look(const Present& present, Place place);
  bool look(const Assert& check, Place place);
  bool look(const CheckIndices&, Place) { return false; }  // of the executor
  bool look(const Print& print, Place place);
  bool look(const ExternCall& call, Place place);
  bool look(const AsyncCopy& copy, Place place);
  bool look(const Return& leave, Place place);
  bool look(const Barrier&, Place) { return true; }
  bool look(const WarpBarrier&, Place) { return true; }
  bool look(const Comment&, Place) { return true; }
  bool look(const Dependency&, Place) { return true; }
  bool look(const AsyncCommit&, Place) { return true; }
  bool look(const AsyncWait&, Place) { return true; }
  void use(const Expr& e, Role role, Place place);
  void use(const Access& access, Place place);
  void use(const Slice& slice, int width, Place place);
  void mark_picks(const Expr& e);
  bool can_move(const Load& load, Place from, Place to) const;

  bool waits_for_previous_ = false;
  std::set<const Stmt*> dead_;
  std::map<const ir::Var*, Use> uses_;
  std::map<const ir::Var*, const Access*> inlined_;
  std::map<const ir::Var*, Expr> definitions_;
  std::set<const ir::Var*> data_, scalar_data_;  // scalar_data_: a scalar parameter is part of it
  std::set<const ir::Node*> guarded_;
  mutable IntRanges ranges_;  // remembers
  std::set<const ir::Var*> register_picks_;
  std::set<const Array*> accessed_;
  std::set<const Array*> computed_on_;
  std::set<const Array*> vectors_;
  std::set<const Array*> read_;  // by other statements than the products of an Mma and conversions
  // Loops, not counting unrolled ones, around what fills an array and around products that read it.
  std::map<const Array*, int> fill_loops_, product_loops_;
};

}  // namespace tessera::codegen::cuda
