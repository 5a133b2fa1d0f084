#pragma once
// The state shared by the parts of lower_tiles: the program under construction, storage of buffers,
// proofs.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/analysis/index_form.h"
#include "codegen/layouts/layout_solution.h"
#include "codegen/lowering/lowered_tiles.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// The floats of which two fill a register.
inline bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}

/// The identity of a reduction, and how two parts are combined.
Expr reduction_identity(ir::ReduceOp op, DType dtype);
ir::Op reduction_op(ir::ReduceOp op);

class TileLowering {
 public:
  TileLowering(const ir::Kernel& kernel, const LayoutSolution& plan);
  LoweredTiles lower();

 private:
  friend class LaneLowering;
  friend class ProductLowering;
  friend class ExtremeLowering;
  /// Values of the author's Vars at the current place (loop indices of parallel loops).
  using Substitution = std::map<const ir::Var*, Expr>;

  /// The place of one parallel iteration in its thread.
  struct Iteration {
    std::vector<Expr> coordinates;  // one per loop axis
    Expr active;      // null, or the predicate that a thread and slot own an iteration (not ragged)
    Expr sole_owner;  // null, or the predicate of the first copy, for side effects
    VarRef lane;      // index within the vector
    int64_t vector = 1;
  };

  // lower_tiles.cpp: statements outside parallel loops
  void lower_body(const ir::Body& body);
  void lower_stmt(const ir::Stmt& stmt);
  // One per kind of statement; a new kind does not compile until it is lowered.
  void lower(const ir::Let& let, SourceLoc loc);
  void lower(const ir::ElementLoad& element, SourceLoc loc) { load(element, loc); }
  void lower(const ir::ElementStore& element, SourceLoc loc) { store(element, loc); }
  void lower(const ir::Atomic& indivisible, SourceLoc loc) { atomic(indivisible, loc); }
  void lower(const ir::Copy& copy, SourceLoc loc);
  void lower(const ir::Fill&, SourceLoc);
  void lower(const ir::Reduce& reduce, SourceLoc loc) { lower_reduce(reduce, loc); }
  void lower(const ir::ReducerInit& init, SourceLoc loc) { reducer_init(init, loc); }
  void lower(const ir::ReducerUpdate& update, SourceLoc loc) { reducer_update(update, loc); }
  void lower(const ir::ReducerFinalize& finalize, SourceLoc loc) {
    reducer_finalize(finalize, loc);
  }
  void lower(const ir::Gemm& gemm, SourceLoc loc);
  void lower(const ir::Loop& loop, SourceLoc loc);
  void lower(const ir::If& branch, SourceLoc loc) {
    lower_branch(branch, loc, [&](const ir::Body& body) { lower_body(body); });
  }
  void lower(const ir::Sync& sync, SourceLoc loc);
  void lower(const ir::Collective& collective, SourceLoc loc);
  void lower(const ir::Assume& assume, SourceLoc loc);
  void lower(const ir::Present& present, SourceLoc loc);
  void lower(const ir::Pointer& pointer, SourceLoc loc);
  void lower(const ir::Assert& check, SourceLoc loc);
  void lower(const ir::Print& print, SourceLoc loc);
  void lower(const ir::Dependency& dependency, SourceLoc loc) { emit({dependency, loc}); }
  void lower(const ir::ExternCall& call, SourceLoc loc);
  void lower(const ir::AsyncCommit& commit, SourceLoc loc) {
    emit({Commit{Work::copies, commit.group}, loc});
  }
  void lower(const ir::AsyncWait& wait, SourceLoc loc) {
    emit({Await{Work::copies, wait.pending, false, wait.group}, loc});
  }
  void lower(const ir::StoreWait& wait, SourceLoc loc) {
    emit({Await{Work::stores, 0, wait.of_reads, wait.token}, loc});
  }
  void lower(const ir::Break& leave, SourceLoc loc);
  void lower(const ir::Return& leave, SourceLoc loc);
  void lower(const ir::Roles& roles, SourceLoc loc);    // lower_roles.cpp
  void lower(const ir::RingTurn& turn, SourceLoc loc);  // lower_roles.cpp
  /// Both sides with `lower`, each knowing the condition.
  void lower_branch(const ir::If& branch, SourceLoc loc,
                    const std::function<void(const ir::Body&)>& lower);
  void lower_loop(const ir::Loop& loop, SourceLoc loc);
  /// False if it is proved that a step from below the end stays inside the type.
  bool may_wrap(const ir::Loop& loop, const Expr& end) const;
  ArrayRef array_of(const ir::BufferRef& buffer);

  // lower_access.cpp: one element or one vector
  Expr resolve(const Expr& e) const;
  std::vector<Expr> resolve(const std::vector<Expr>& list) const;
  /// The register slot of an element of a fragment, local or scalar buffer.
  Expr register_slot(const ir::Buffer& buffer, const std::vector<Expr>& indices,
                     SourceLoc loc) const;
  /// The access to `width` elements from `element.indices` on. `element` is an ElementLoad or
  /// ElementStore.
  template <class Element>
  Access access(const Element& element, int width, SourceLoc loc) {
    check_indices(
        element, [&](const Expr& e) { return resolve(e); }, loc);
    return access(element.buffer, resolve(element.indices), width, element.terms, loc);
  }
  /// Emits the executor's checks before an access to `element`: indices of registers and views, which
  /// have no addresses that could be out of bounds. `at` evaluates an author's expression at the place
  /// of the access.
  template <class Element>
  void check_indices(const Element& element, const std::function<Expr(const Expr&)>& at,
                     SourceLoc loc) {
    check_indices(element.buffer, element.indices, element.terms.tile_indices, at, loc);
  }
  void check_indices(const ir::BufferRef& buffer, const std::vector<Expr>& indices,
                     const std::vector<ir::TileIndex>& tiles,
                     const std::function<Expr(const Expr&)>& at, SourceLoc loc);
  /// index * stride in i64. Constants after unrolling are multiplied separately, so that the
  /// accesses of an unrolled loop differ by constants.
  Expr offset_term(const Expr& index, const Expr& stride) const;
  Access access(const ir::BufferRef& buffer, const std::vector<Expr>& indices, int width,
                ir::AccessTerms terms, SourceLoc loc);
  std::vector<Expr> in_root(const ir::Buffer& view, const std::vector<Expr>& indices) const;
  void load(const ir::ElementLoad& element, SourceLoc loc);
  void store(const ir::ElementStore& element, SourceLoc loc);
  void atomic(const ir::Atomic& atomic, SourceLoc loc);
  /// For `explain`: sums in memory that are made element by element.
  void note_single_sum(const ir::Buffer& buffer, const char* reason, SourceLoc loc);
  void note_single_sums(const ir::Body& body, int64_t vector);
  void require_writable(const ir::Buffer& buffer, SourceLoc loc) const;

  // lower_parallel.cpp
  void lower_parallel(const ir::Loop& loop, SourceLoc loc);
  void for_each_slot(const layout::Layout& layout, const std::vector<Expr>& extents, int64_t vector,
                     SourceLoc loc, const std::function<void(const Iteration&)>& body);
  void lower_lanes(const ir::Body& body, const Iteration& it, SourceLoc loc,
                   bool contract);  // lower_lanes.cpp

  // lower_async.cpp
  /// Lowers one vector of a copy in pieces.
  void lower_pieces(const ir::Loop& loop, const Iteration& it, SourceLoc loc);
  /// Lowers a whole bulk copy, row by row.
  void lower_bulk(const ir::Loop& loop, SourceLoc loc);
  /// A whole copy that goes on in the background, as a box of a tensor map.
  void lower_tensor_copy(const ir::Copy& copy, SourceLoc loc);   // lower_tensor_copy.cpp
  void lower_tensor_store(const ir::Copy& copy, SourceLoc loc);  // lower_tensor_store.cpp
  /// The coordinate of a box that begins at `first` of a dimension of `extent`: outside if the tensor is empty.
  Expr coordinate_of(const Expr& first, const Expr& extent) const;
  /// A new map for boxes of a tensor, as wide as a tile.
  TensorMapRef map_of_tile(const ir::BufferRef& tensor, std::vector<int64_t> box);
  Access place_of_map(const ir::Buffer& tensor, SourceLoc loc);
  void write_map(const ir::BufferRef& tensor, SourceLoc loc);

  // lower_reduce.cpp
  void lower_reduce(const ir::Reduce& reduce, SourceLoc loc);
  /// Folds the slots of each thread alone.
  void fold_own_slots(const ir::Reduce& reduce, SourceLoc loc);
  /// The way in which threads with parts of one output exchange them.
  struct PartExchange {
    std::vector<int64_t> masks;                 // inside the warp: xor of lanes, the largest first
    std::vector<layout::Digit> through_shared;  // the others
  };
  PartExchange exchange_of(const std::vector<layout::Digit>& digits) const;
  /// Folds `outputs` registers of `result` over the lanes of the masks.
  void fold_lanes(ir::ReduceOp op, const std::vector<int64_t>& masks, const ArrayRef& result,
                  int64_t outputs, SourceLoc loc);
  /// The same over the threads that the digits number.
  void fold_warps(ir::ReduceOp op, const PartExchange& exchange, const ArrayRef& result,
                  int64_t outputs, SourceLoc loc);
  /// The same where all lanes of a warp hold the same part.
  void fold_whole_warps(ir::ReduceOp op, int64_t count, const ArrayRef& result, int64_t outputs,
                        SourceLoc loc);
  ArrayRef new_exchange(const ArrayRef& result, int64_t outputs, int64_t parts, SourceLoc loc);
  void fill(const ArrayRef& registers, const Expr& value, SourceLoc loc);
  void combine(ir::ReduceOp op, const Slice& into, const Expr& value, SourceLoc loc);
  /// Folds maxima and minima of 16-bit floats, also over the lanes of the masks. False for other
  /// reductions.
  bool lower_extreme(const ir::Reduce& reduce, const std::vector<int64_t>& masks,
                     SourceLoc loc);  // lower_extremes.cpp

  // lower_reducer.cpp
  void reducer_init(const ir::ReducerInit& init, SourceLoc loc);
  void reducer_update(const ir::ReducerUpdate& update, SourceLoc loc);
  void reducer_finalize(const ir::ReducerFinalize& finalize, SourceLoc loc);
  bool is_wide(const ir::Buffer& reducer) const;

  // lower_roles.cpp
  /// A ring as its fills and takes need it.
  struct RingState {
    ArrayRef full, empty;       // mbarriers, one for each stage
    bool has_pieces = false;    // its copies go on in pieces, each thread arrives for its own
    bool fences_takes = false;  // tensor cores or a tensor store read what threads have written
    bool fences_fills = false;  // threads and bulk copies write one tile
    int blocks = 1;             // that fill it together: of the cluster
    ArrayRef stage, round;      // registers of the role: of the next turn
    Access filled;              // the mbarrier of the fill around the statement
  };
  void plan_rings();
  void init_rings(SourceLoc loc);
  VarRef read_counter(const ArrayRef& counter, VarRef into, SourceLoc loc);

  // building blocks
  VarRef new_var(std::string name, DType type, ir::VarKind kind, Expr lower = {}, Expr upper = {});
  ArrayRef new_registers(std::string name, DType dtype, int64_t size, SourceLoc loc);
  void emit(Stmt stmt) {
    stmt.manual_sync = manual_sync_;
    out_->push_back(std::move(stmt));
  }
  /// Records the statements of `fn` into a new body.
  Body nested(const std::function<void()>& fn);
  /// An unrolled loop of `count` rounds, or just its body with index 0 for one round.
  void unrolled(const std::string& name, int64_t count, SourceLoc loc,
                const std::function<void(const Expr&)>& fn);
  /// Emits `fn` under a predicate, or plainly without one.
  void when(const Expr& predicate, SourceLoc loc, const std::function<void()>& fn);
  /// The index of a thread in the group.
  Expr thread() const { return ir::var(thread_); }
  [[noreturn]] void fail(const char* code, std::string what, SourceLoc loc,
                         std::string expected = {}, std::string got = {},
                         std::string hint = {}) const;

  const ir::Kernel& kernel_;
  const LayoutSolution& layouts_;
  ThreadGroup group_;  // the threads that execute the current statement
  VarRef thread_;
  LoweredTiles result_;
  Body* out_ = nullptr;
  IndexMath math_;
  Substitution values_;
  std::set<const ir::Var*> unrolled_vars_;
  std::vector<RingState> rings_;    // by number
  int role_ = -1;                   // whose body is lowered, in ir::Roles
  bool manual_sync_ = false;        // the statement being lowered stands in a manual-sync region
  Expr sole_owner_;                 // predicate on side effects in the iteration being lowered
  std::map<int, ArrayRef> arrays_;  // by storage: id of the root buffer
};

}  // namespace tessera::codegen
