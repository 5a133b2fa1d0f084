#pragma once
// The thread IR: what one thread does. It is the contract between lowering and its two consumers:
// cuda/emit.h prints it, cpu/executor.h runs it for all threads of a block in lockstep. Expressions
// and Vars are those of dsl/ir/expr.h.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "codegen/order.h"
#include "codegen/thread_group.h"
#include "codegen/thread_ir/access.h"
#include "codegen/thread_ir/array.h"
#include "codegen/thread_ir/tensor_store.h"
#include "dsl/base/target.h"
#include "dsl/ir/expr.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

using ir::VarRef;

struct Stmt;
using Body = std::vector<Stmt>;

using ir::Let;
/// Reads into `var` (width 1) or into `into`. Where the guard is false the result is 0.
struct Load {
  Access from;
  VarRef var;
  Slice into;
  bool at_use = false;     // printed in place of `var`: no statement between changes what it reads
  bool by_branch = false;  // the GPU branches on the guard: choose_access_forms
  bool in_pair = false;    // at_use: widened from the register it shares: choose_access_forms
};
/// Writes `value` (width 1) or `from`. Where the guard is false nothing is written.
struct Store {
  Access to;
  Expr value;
  Slice from;
  bool kept_for_loops = false;  // the GPU computes `value` here, not later: choose_access_forms
};
/// to = op(to, value) in one indivisible step, one element, relaxed or ordered; see ir::Atomic. Where
/// the guard is false nothing happens and `old` is 0. With `until` no statement but this one uses `old`. With a
/// width above 1, to[i] += from[i] in one instruction on sm_90 and later, each element by itself
/// indivisible: relaxed sums of f32, f16 or bf16 in global memory, of f16 or bf16 in shared memory (two in one
/// instruction), whose old values nobody wants.
struct Atomic {
  ir::AtomicOp op;
  Access to;
  Expr value;    // width 1; null: a load
  Expr compare;  // compare_exchange only
  VarRef old;    // null = not wanted
  ir::MemoryOrder order = ir::MemoryOrder::relaxed;
  Expr until = {};  // load: the thread repeats it until this holds
  Slice from = {};  // widths above 1
};
/// True if there are instructions that add several neighbours of this dtype to global or shared memory.
inline bool has_wide_sum(ArraySpace space, DType dtype) {
  const bool is_half = dtype == DType::f16 || dtype == DType::bf16;
  return space == ArraySpace::global ? is_half || dtype == DType::f32
                                     : space == ArraySpace::shared && is_half;
}
/// into[0..width) = cast(from[0..width)), the dtypes of the two arrays.
struct Convert {
  Slice into, from;
  int width;
  int at_once = 1;  // elements of one conversion on the GPU, a divisor of width: choose_conversions
};
/// into[i] = op(args[0][i], ..) for i in [0, width), f16 or bf16, an even number of them: add, sub,
/// mul, min, max or abs. Two at a time on the GPU, with the bits of one at a time. `into` may be an
/// argument.
struct Packed {
  ir::Op op;
  Slice into;
  std::vector<Slice> args;
  int width;
  bool of_magnitude = false;  // of max: max(a, |b|)
};
/// Eight rows of 16 bytes are a matrix; the warp reads `count` (2 or 4) of them from shared memory.
/// Lane l names row l % 8 of matrix l / 8 (of matrix l / 8 % count). Into register m of each lane,
/// E = 4 / element bytes elements: those of row lane / 4 from column lane % 4 * E on, of matrix m;
/// transposed (16-bit elements only): rows lane % 4 * 2 and one more of column lane / 4.
struct LoadMatrix {
  Access from;  // one row
  Slice into;   // count * E elements
  int count = 4;
  bool transposed = false;

  int width() const { return count * 32 / bits(from.array->dtype); }  // of `into`
};
/// An operand that the tensor cores read in shared memory themselves: `rows` of the product, or columns, by one step of
/// k, which is 32 bytes. It lies in panels with a swizzle of the hardware.
struct SharedMatrix {
  Access first;             // the first 16 bytes
  int64_t rows = 0;         // m or n
  bool transposed = false;  // the contiguous dimension is m or n, not k: 16-bit elements only

  int64_t depth() const { return 256 / bits(first.array->dtype); }  // k
};
/// One matrix instruction, c += a * b. See Builder::gemm for the order of the sum. f32 operands lose their low 13 bits.
///
/// Without `right` the warp issues it: m16 n8 k8E, the lanes hold c[0..4), a[0..4E) and b[0..2E) as layout::mma_accumulator,
/// mma_left and mma_right say.
///
/// With it four warps do, and it is in flight after the statement: 64 x n += 64 x k * k x n, where b, and a unless it is
/// in registers, lie in shared memory. The threads hold c[0 .. n / 2) and a[0..4E) as layout::wgmma_accumulator and wgmma_left say. Until
/// an Await, the registers of c may not be accessed, those of a not be written.
struct Mma {
  Slice c;
  Slice a, b;               // no array: in shared memory
  SharedMatrix left = {};   // 64 x k
  SharedMatrix right = {};  // n x k
  bool clears = false;      // of four warps: c = a * b

  bool is_of_group() const { return right.first.array != nullptr; }
  DType left_dtype() const { return (a.array ? a.array : left.first.array)->dtype; }
  DType right_dtype() const { return (b.array ? b.array : right.first.array)->dtype; }
  int per_register() const { return 32 / bits(left_dtype()); }        // E
  int64_t columns() const { return is_of_group() ? right.rows : 8; }  // n
  int64_t sums() const { return is_of_group() ? columns() / 2 : 4; }  // of c, for each thread
};
/// Closes the group of the work that this thread, of products these four warps, started since the last commit of
/// such work.
struct Commit {
  Work work = Work::copies;
  int token = -1;  // until number_groups: the author's, -1 if nobody waits for this group by name
};
/// Waits until at most `pending` groups of the work are in flight.
struct Await {
  Work work = Work::copies;
  int pending = 0;
  /// Stores: their tiles have been read and may be written again; else their elements are in memory too.
  bool of_reads = false;
  int token = -1;  // until number_groups: the group to wait for, in place of `pending`
  /// Products: the registers that may be used after the wait; no array: all stay in flight.
  Slice sum = {};
  int64_t width = 0;  // of `sum`
  /// Products: registers whose values the wait stands below. The assembler would move it above them, since nothing that it
  /// knows of depends on their order.
  Slice above = {};
  int64_t above_width = 0;  // of `above`
};
/// Orders what this thread did before what others do for it.
struct Fence {
  enum class Of : uint8_t {
    shared,  // its writes to shared memory: products of four warps, bulk copies and tensor stores see them after the next barrier
    global,  // these, and its writes to global memory
    registers,  // its accesses to `sum` and left operands: products may begin
  };
  Of of = Of::shared;
  Slice sum = {};     // registers; no array: sums that stay in flight
  int64_t width = 0;  // of `sum`
};
/// for (var = begin; var < end; var += step), with the rounds of Python's range(begin, end, step). Unrolled loops have
/// constant bounds, others may end early.
struct For {
  VarRef var;
  Expr begin, end, step;
  bool unrolled = false;
  Body body;
  bool over_slots = false;  // unrolled, by the compiler: one round per slot of the thread
  int64_t at_once = 0;      // rounds written out at once; 0 = all if unrolled, else NVRTC's choice
  bool may_wrap = false;    // the sum of the last index and the step may leave their type
};
struct If {
  Expr condition;
  Body then, otherwise;
  bool is_guard = false;  // the condition was the guard of an access: index arithmetic
};
/// Roles: disjoint groups of whole warps, each with a body of its own, run concurrently; threads of
/// no group go on. At most once in a program, at its top level. The bodies contain no barrier of the
/// block and no return. Their end orders no memory.
struct RoleBodies {
  struct Role {
    std::string name;
    ThreadGroup threads;
    VarRef thread;  // of the group, from 0; null = not wanted
    Body body;
    /// Registers of each thread on sm_90a; 0 = as launched. All warps of the groups of four warps that the role
    /// begins ask for them: no other role has threads there.
    int registers = 0;
  };
  std::vector<Role> roles;
};
/// Starts copying `from.width` elements from global to shared memory. They are in `to` after a wait
/// for their group and must not be touched before. 4, 8 or 16 bytes, one dtype. Where the guard of
/// `from` is false zeros are written; `to` has none. Copies to a tile of a ring belong to no group: see
/// MbarrierArrive.
struct AsyncCopy {
  Access from, to;
};
/// Initialises mbarriers, by one thread: phase 0, `arrivals` of their array pending. A proxy fence and a
/// block barrier precede their first use.
///
/// An mbarrier goes through phases, counted from 0. A phase ends when no arrival is pending and all
/// bytes that its threads expect have been copied; then the next one begins with all arrivals pending.
/// GPUs before sm_90 ignore mbarrier statements.
struct MbarrierInit {
  Access at;  // `width` of them
};
/// One arrival at the current phase; `after_copies`: once the copies into the ring of the mbarrier that this
/// thread has started (AsyncCopy) are there. `rank`: at the mbarrier in the same place of that block of the
/// cluster; null = of this block.
struct MbarrierArrive {
  Access at;
  bool after_copies = false;
  Expr rank = {};
  /// Until place_product_waits: above 0, one arrival of each warp, when all its lanes have come, at the mbarrier in the
  /// same place of each of so many blocks.
  int of_warp_at = 0;
};
/// Waits until phase `phase` has ended. Its copies, and what other threads wrote before their
/// arrivals, are visible afterwards. The hardware compares only the parity of the phase, so a
/// thread may wait for the current phase or the previous one. `of_cluster`: threads of other blocks of the
/// cluster arrive too.
struct MbarrierWait {
  Access at;
  Expr phase;
  bool of_cluster = false;
};
/// Starts copying `from.width` elements from global to shared memory, any multiple of 16 bytes, one dtype.
/// All lanes of the warp name the same elements; lane 0 starts the copy. They are in `to` when the
/// current phase of `mbarrier` has ended.
///
/// Until lower_bulk_copies there is no mbarrier (a null array): the copy belongs to a group, as an
/// AsyncCopy does, and where the guard of `from` is false zeros are written.
///
/// GPUs before sm_90 have no bulk copies: the lanes of the warp copy pieces of 16 bytes, in groups that stay.
struct BulkCopy {
  Access from, to;
  Access mbarrier = {};
  bool expects = false;  // its bytes, before it starts

  int64_t bytes() const { return int64_t{from.width} * bits(from.array->dtype) / 8; }
};
/// Starts copying a box of a tensor to shared memory, where its rows follow each other with the swizzle of the
/// map. What is outside of the tensor is zero and counts as copied. All lanes of the warp name the same box;
/// lane 0 starts the copy. It is in `to` when the current phase of `mbarrier` has ended.
///
/// Until lower_bulk_copies the box is a whole tile, in the layout of its array, and there is no mbarrier; the
/// copy belongs to a group, as a BulkCopy does. From sm_90 on.
///
/// `multicast`: the box lands in the same place of all blocks of the cluster, and completes on the mbarrier in
/// the same place of each. Each block copies a part: until lower_bulk_copies the box is the whole tile, then
/// the block's part of it.
struct TensorCopy {
  TensorMapRef map;
  std::vector<Expr> coordinates;  // i32, of the first element of the box
  Access to;                      // its first 16 bytes
  Access mbarrier = {};
  bool expects = false;  // see BulkCopy; `multicast`: the bytes of all parts
  bool multicast = false;
  Access map_at = {};  // where a WriteMap has put the map; no array = the program's parameter

  int64_t bytes() const { return map->elements() * bits(map->tensor->dtype) / 8; }
};
/// Writes to global memory how the copy engine sees a tensor at a run-time address: the map that the host made, with
/// this address, these extents and strides. All lanes of the warp name the same 128 bytes; lane 0 writes, and its tensor
/// copies see the map from here on. No copy by an earlier map in the same place may be in flight. On targets that tensor
/// maps can be written on.
struct WriteMap {
  TensorMapRef map;                    // null until lower_bulk_copies
  ArrayRef tensor;                     // its extents, at least 1 each, are those of the map
  std::vector<Expr> extents, strides;  // i64, one per dimension; strides in elements
  Access to;                           // 16 u64
};
/// Threads that meet the condition leave the kernel.
struct Return {
  Expr condition;
};
/// A barrier of the warp, of the block, or of all blocks of the cluster or grid. A cluster barrier may be split:
/// no thread passes `cluster_wait` before all threads have executed `cluster_arrive`.
///
/// A named barrier is one of `threads` threads: whole warps of one role or of several. Threads that only arrive go on at
/// once, the others wait until all have arrived; accesses before the barrier precede those after the wait. A thread comes
/// once to each meeting, and not before the previous meeting is over.
enum class BarrierScope : uint8_t {
  warp,
  named,
  named_arrive,
  block,
  cluster,
  cluster_arrive,
  cluster_wait,
  grid
};
std::string_view name(BarrierScope scope);
struct Barrier {
  BarrierScope scope = BarrierScope::block;
  int reason = 0;  // of the compiler: which of insert_barriers' conflicts, from 1; 0 = the author's
  int id = 0;      // named: 1 .. 15
  int threads = 0;  // named

  bool is_named() const {
    return scope == BarrierScope::named || scope == BarrierScope::named_arrive;
  }
};
/// var = collective(args); see ir::CollectiveKind. All 32 lanes of the warp take part.
struct Collective {
  VarRef var;
  ir::CollectiveKind kind;
  std::vector<Expr> args;
  int width = 32;
};
/// Starts the lowering of one DSL statement; printed as a comment with the statement's location.
struct Comment {
  std::string text;
};
/// Declares a register array, a global one at a run-time address, or one in another block's shared
/// memory, from here to the end of the enclosing body. `zero` fills registers first.
struct Declare {
  ArrayRef array;
  bool zero = false;
};

/// var = the argument of an array parameter is not null.
struct Present {
  VarRef var;
  ArrayRef array;
};
/// The consequence of a false condition.
enum class Otherwise : uint8_t {
  stop,
  trap,    // an assumption: only the executor checks it, with traps on
  report,  // goes on, after recording the number of a report
};
struct Assert {
  Expr condition;
  std::string message;
  Otherwise otherwise = Otherwise::stop;
  int report = -1;
};
/// For the checked executor: the ranges of the author's indices of the next access, as far as they are
/// not proved. `indices` name the element.
struct CheckIndices {
  struct Range {
    Expr index, begin, extent;  // begin <= index < begin + extent
    int dim = -1;               // of the array; -1: a tile that the author indexes
  };
  ArrayRef array;
  std::vector<Expr> indices;
  std::vector<Range> ranges;
};
using ir::Break;
using ir::Dependency;
using ir::ExternCall;
using ir::Print;

struct Stmt {
  std::variant<Let, Load, Store, Atomic, Convert, Packed, LoadMatrix, Mma, For, If, Break, Return,
               RoleBodies, Barrier, Collective, Comment, Declare, Present, Assert, CheckIndices,
               Print, Dependency, ExternCall, AsyncCopy, BulkCopy, TensorCopy, TensorStore, Commit,
               Await, Fence, MbarrierInit, MbarrierArrive, MbarrierWait, WriteMap>
      node;
  SourceLoc loc;
  bool manual_sync = false;  // only the author's barriers order it
};

/// One kernel parameter, in order. Tensors first, then dims, then scalars.
struct Param {
  std::string name;
  ArrayRef array;  // pointer parameter
  VarRef var;      // dim or scalar parameter
};

struct Program {
  std::string name;
  Target target;
  std::vector<Param> params;
  std::vector<TensorMapRef> maps;  // parameters too, after the others
  std::vector<Expr> grid;          // 1 to 3 extents over dims and scalars
  VarRef thread;                   // thread index in the block
  std::vector<VarRef> blocks;
  int threads = 128;
  int min_blocks_per_sm = 0;
  int cluster = 1;                 // blocks along x
  bool cooperative = false;        // its blocks wait for each other: all of them run at once
  std::vector<std::string> marks;  // names: see ir::Print
  std::optional<int64_t> marked_block = {};  // see ir::Kernel
  int64_t shared_bytes = 0;
  std::vector<ArrayRef> shared;  // arrays of the arena
  Body body;
  int num_vars = 0;  // Var::id < num_vars

  ThreadGroup block() const { return {0, threads}; }
};

/// Readable text, stable: `tessera show OP --stage thread`.
std::string to_string(const Program& program);

}  // namespace tessera::codegen
