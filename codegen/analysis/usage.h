#pragma once
// How a program uses its values: which arithmetic is index arithmetic, which may wrap, and which registers
// form vectors. The printer writes a plain `a + b` where may_wrap() is false; there the checked executor traps
// if the sum wraps.

#include <map>
#include <set>

#include "codegen/analysis/int_range.h"
#include "codegen/thread_ir/effects.h"

namespace tessera::codegen {

/// The use of the result of an expression.
enum class ValueRole {
  index,    // an address, a bound, a guard: the checked executor traps an overflow
  operand,  // arithmetic that makes every NaN canonical
  value,    // its bits reach memory, another thread or a bitcast
};

/// The role of argument `arg` of a node with role `role`.
ValueRole argument_role(const ir::Node& node, size_t arg, ValueRole role);

class Usage {
 public:
  explicit Usage(const Program& program);
  Usage(const Usage&) = delete;
  Usage& operator=(const Usage&) = delete;

  /// True if some printed expression names the variable.
  bool is_used(const ir::Var& var) const { return uses_.contains(&var); }

  /// The load that is printed in place of `var` (Load::at_use). Null for every other variable.
  const Load* inlined_load(const ir::Var& var) const;

  /// The strongest role in which the variable is used.
  ValueRole role(const ir::Var& var) const;

  /// The role of a value stored to the array: operand if only matrix products and conversions read it.
  ValueRole store_role(const Array& to) const;

  /// True if a signed sum, difference, product or negation may leave its type: it depends on memory,
  /// another thread or a scalar parameter, or the known ranges of indices and extents do not exclude
  /// it. An i32 index wraps where it depends on extents alone, or on loaded values under a guard. For
  /// indices made of scalar parameters, and unguarded indices of loaded values, the author vouches: the
  /// checked executor traps their overflow.
  bool may_wrap(const Expr& e, ValueRole role) const;

  /// The value that a Let binds to the variable; null if none does.
  Expr definition(const ir::Var& var) const;

  /// True if some statement accesses the array.
  bool is_accessed(const Array& array) const { return accessed_.contains(&array); }

  /// True if the kernel waits for the previous kernel of the stream.
  bool waits_for_previous() const { return waits_for_previous_; }

  /// True if nothing writes the global array while the kernel runs, so that its reads may move, but
  /// not above a wait for the kernel that writes it.
  bool is_constant(const Array& array) const { return array.is_constant() && !waits_for_previous_; }

  /// True if an access of more than one element uses the register array.
  bool is_vector(const Array& array) const { return vectors_.contains(&array); }

 private:
  /// Marks everything that a guard, or a guarded offset, depends on.
  void mark_guarded(const Expr& root);
  /// True for a dependence on memory, another thread or a scalar parameter, not only on the
  /// thread's position.
  bool depends_on_data(const Expr& e) const { return depends_on(e, data_); }
  static bool depends_on(const Expr& e, const std::set<const ir::Var*>& vars);
  void mark_data(const Body& body);
  void mark_reads(const Body& body);
  void mark_read(const Stmt& stmt, const RegisterEffect& effect);
  void visit(const Body& body);
  // One per kind of statement: records its uses.
  void look(const Let& let);
  void look(const Load& load);
  void look(const Store& store);
  void look(const Atomic& atomic);
  void look(const Convert& convert);
  void look(const Packed& packed);
  void look(const LoadMatrix& matrices);
  void look(const Mma& mma);
  void look(const Commit&) {}
  void look(const Await& wait) {
    use_sum(wait);
    if (wait.above.array) use(wait.above, 4);
  }
  void look(const Fence& fence) { use_sum(fence); }
  void look(const For& loop);
  void look(const If& branch);
  void look(const RoleBodies& bodies);
  void look(const Collective& collective);
  void look(const Declare& declare);
  void look(const Present&) {}
  void look(const Assert& check);
  void look(const CheckIndices&) {}  // executor only
  void look(const Print& print);
  void look(const ExternCall& call);
  void look(const AsyncCopy& copy);
  void look(const Break& leave);
  void look(const Return& leave);
  void look(const Barrier&) {}
  void look(const Comment&) {}
  void look(const Dependency&) {}
  void look(const MbarrierInit& init) { use_mbarrier(init.at); }
  void look(const MbarrierArrive& arrive);
  void look(const MbarrierWait& wait);
  void look(const BulkCopy& copy);
  void look(const TensorCopy& copy);
  void look(const TensorStore& store);
  void look(const WriteMap& write);
  void use(const Expr& e, ValueRole role);
  void use(const Access& access);
  void use(const Slice& slice, int width);
  void use_mbarrier(const Access& at);
  /// Records the registers of an Await or a Fence.
  void use_sum(const auto& stmt) {
    if (stmt.sum.array) use(stmt.sum, 4);
  }

  bool waits_for_previous_ = false;
  std::map<const ir::Var*, ValueRole> uses_;
  std::map<const ir::Var*, const Load*> inlined_;
  std::map<const ir::Var*, Expr> definitions_;
  std::set<const ir::Var*> data_, scalar_data_;  // scalar_data_: a scalar parameter is part of it
  std::set<const ir::Node*> guarded_;
  mutable IntRanges ranges_;  // caches
  std::set<const Array*> accessed_;
  std::set<const Array*> vectors_;
  std::set<const Array*> read_;  // by statements other than Mma products and conversions
};

}  // namespace tessera::codegen
