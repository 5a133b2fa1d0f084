#pragma once
// The executable form of a Program: a flat list of instructions over slots. A slot is one value for
// the whole block (uniform) or a column of one value per thread. Most index arithmetic is uniform
// and costs one scalar operation per block, so the two kinds are separate from the start.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/cpu/arithmetic/column_ops.h"
#include "codegen/cpu/races/grid_shadow.h"
#include "codegen/thread_ir.h"

namespace tessera::codegen::cpu {

inline constexpr int kWarpSize = kThreadsPerWarp;

/// A place in the frame. Negative offsets live for the whole launch (constants, parameters, the
/// thread index); offsets from zero on are a stack that follows the scopes of the program.
struct Slot {
  int32_t offset = kNone;
  DType type = DType::i32;
  bool uniform = true;

  static constexpr int32_t kNone = INT32_MIN;
  explicit operator bool() const { return offset != kNone; }
};

enum class Code : uint8_t {
  compute,         // out = op(args), once if `out` is uniform, else for the active threads
  copy,            // out = args[0]
  broadcast,       // column out = uniform args[0]
  check_overflow,  // trap unless out == args[0] (+, -, *) args[1] holds without wrapping;
                   // expressions[index]; target 1: no index, but Usage took it not to wrap
  check_divisor,   // trap where args[0] == 0; expressions[index]
  check_uniform,   // trap where args[0] differs between active threads; expressions[index]
  check_indices,   // trap where an index is outside of its range; index_checks[index]
  jump,            // to target
  jump_unless,     // to target if the uniform args[0] is false
  mask_push,       // active threads: those with args[0]; to target if none
  mask_else,  // the complement within the enclosing mask, of the same args[0]; to target if none
  mask_and,   // drops threads without args[0] from the current mask; to target if none
  mask_pop,
  guard,  // like mask_push, and zeroes the destination of transfers[index] for threads that fail
  load,   // transfers[index]
  store,
  atomic,
  pointer,        // column out = address args[0] as an element offset; arrays[index]
  require,        // requirements[index] holds: args[0]
  print,          // prints[index]
  mark,           // the event `index` of the timeline: see ir::Print
  extern_call,    // out = calls[index]
  lanewise,       // lanewise[index]
  multiply,       // products[index]
  start_product,  // group_products[index]
  commit_products,
  await_products,  // until at most `index` groups are under way
  proxy_fence,
  declare,     // arrays[index]
  async_read,  // checks and counts what asyncs[index] reads, for the threads that read
  async_copy,  // starts asyncs[index]; threads without args[0], if given, will get zeros
  async_commit,
  async_wait,     // until at most `index` groups are under way
  mbarrier_init,  // of mbarriers[index]; so the next two
  mbarrier_arrive,
  mbarrier_wait,
  bulk_copy,     // starts asyncs[index]
  tensor_copy,   // starts boxes[index]
  write_map,     // map_steps[index]
  tensor_store,  // starts box_stores[index]
  commit_stores,
  await_stores,  // until at most `index` groups are under way; target 1: only their reads
  leave,         // active threads with args[0] have finished; to target if none is left
  barrier,
  named_barrier,    // named_barriers[index]
  part,             // roles begin; the block continues at target when all have ended
  await_signal,     // to target, and the block stops until it is resumed, unless all have args[0]
  grid_barrier,     // the block stops here until all blocks of the grid arrive
  cluster_barrier,  // the block stops here until all blocks of its cluster arrive
  view,             // column out = the block args[0] as an element offset; arrays[index]
  warp_barrier,
  collective,  // out = collectives[index](args)
};

struct Instr {
  Code code;
  int32_t statement = 0;  // in Bytecode::locs
  int32_t target = 0;     // instruction to jump to
  int32_t index = 0;
  Slot out;
  Slot args[3];
  ColumnOp op = nullptr;
};

/// An Array of the program with its place in the executor.
struct Storage {
  ArrayRef array;
  int param = -1;             // global: index of the argument
  int32_t offset = 0;         // registers: frame offset; element i of all threads is one column
  int32_t stride = 0;         // registers: bytes between columns
  int32_t initialised = 0;    // registers, checked: frame offset of one byte per element and thread
  bool zero = false;          // registers: filled by declare
  Ways ways;                  // global, checked: how the program accesses it
  std::vector<Slot> extents;  // checked: logical shape, uniform i64
  Slot base;                  // global at an address, cluster: i64 column, added to every offset
  Slot block;                 // cluster: rank of the owner, i32 column
};

/// `width` columns of a register array.
struct SlotRange {
  int storage = -1;
  Slot base;  // uniform i64
};

/// A load or store between memory and a column (`value`) or `width` register columns (`range`).
struct Transfer {
  int storage = -1;
  int width = 1;
  bool is_load = true;
  Slot offset;                // i64; a column unless a register array is indexed by a uniform value
  std::vector<Slot> indices;  // checked: i64 columns
  Slot in_owner;              // cluster: i64 column, the offset in the owner's array
  Slot value;
  SlotRange range;
  int atomic = -1;  // in Bytecode::atomics: a load into `value` that also writes
  // Rows of matrices, each for its whole warp: LoadMatrix. `width` elements are one row then.
  int matrices = 0;
  bool transposed = false;
  bool is_bulk = false;  // of a bulk copy
};

/// CheckIndices with its values: i64 columns.
struct IndexCheck {
  struct Range {
    Slot index, begin, extent;
    int dim = -1;
  };
  ArrayRef array;
  std::vector<Slot> indices;
  std::vector<Range> ranges;
};

inline Way way_of(const Transfer& transfer) {
  return transfer.atomic >= 0 ? Way::changed : transfer.is_load ? Way::read : Way::written;
}

struct AtomicStep {
  ir::AtomicOp op = ir::AtomicOp::add;
  ColumnOp combine = nullptr;  // add, max, min
  bool flushes = false;        // f32 sums in global memory, but not those of tensor stores
  bool releases = false;       // acq_rel, in global memory, and it may write
  bool acquires = false;       // acq_rel, in global memory, and its old value is used
  Slot operand, compare;       // columns; none of a load
  SlotRange from;              // in place of `operand`, if the transfer is wider than one element
};

struct PrintStep {
  std::string format;  // as printf takes it
  std::vector<Slot> args;
};

struct ExternStep {
  std::shared_ptr<const ir::ExternFunction> function;
  std::vector<Slot> args;
};

/// A copy from global to shared memory that completes at a wait.
struct AsyncMove {
  Transfer from, to;
  int mbarrier = -1;     // in Bytecode::mbarriers: a bulk copy
  bool expects = false;  // see BulkCopy
};

/// A TensorCopy, or the box of a TensorStore.
struct BoxMove {
  TensorMapRef map;
  int tensor = -1;                     // in Bytecode::arrays; -1: the map is in memory
  std::vector<Slot> extents, strides;  // uniform i64, if it is not
  Transfer map_at;
  std::vector<Slot> coordinates;  // i64 columns
  Transfer to;                    // the whole box; of a store, what it reads
  Transfer global;                // the other side, for counts
  int mbarrier = -1;              // in Bytecode::mbarriers
  bool expects = false;
  bool multicast = false;
};

/// A WriteMap.
struct MapStep {
  ArrayRef tensor;
  Transfer at;   // its first word
  Slot address;  // columns of i64, like those
  std::vector<Slot> extents, strides;
};

/// A TensorStore.
struct BoxStore {
  BoxMove box;
  Transfer chunk;   // 16 bytes of the source; the offset is scratch
  Transfer tensor;  // its indices are the coordinates; with `atomic` it adds
};

/// An mbarrier statement.
struct MbarrierStep {
  Transfer at;                // `width` mbarriers
  Slot phase;                 // wait: column of any integer dtype
  int64_t bytes = 0;          // expect
  bool after_copies = false;  // arrive: with what the thread copies into the ring
  Slot rank = {};             // arrive: i32 column of blocks of the cluster; none = of this block
};

/// into[i] = op(args[0][i], ..), one column after the other.
struct Lanewise {
  SlotRange into;
  std::vector<SlotRange> args;
  int width = 1;
  ColumnOp op = nullptr;
};

/// One matrix instruction per warp.
struct Product {
  SlotRange c, a, b;
};

/// A matrix in shared memory.
struct MatrixOperand {
  Transfer transfer;  // from its first element on, by every thread
  Transfer chunk;     // 16 bytes of it; the offset is scratch
};

/// One matrix instruction per group of four warps.
struct GroupProduct {
  SlotRange c, a;
  MatrixOperand left, right;
  Mma node;
};

/// The instructions [begin, end) of the threads of one role.
struct RoleCode {
  std::string name;
  ThreadGroup threads;
  int begin = 0, end = 0;
};

struct CollectiveOp {
  ir::CollectiveKind kind = ir::CollectiveKind::shuffle;
  int width = 32;
};

/// A value known before the launch starts: a constant, or parameter `param`.
struct Initial {
  Slot slot;
  Slot column;  // the same value for each thread, if something needs it
  int param = -1;
  uint64_t bits = 0;  // constant: the value in native storage
};

struct Bytecode {
  bool checked = false;
  int threads = 0;
  std::vector<Instr> launch;  // once per launch: grid and extents
  std::vector<Instr> block;   // once per block
  std::vector<Initial> initials;
  std::vector<Slot> grid;  // i64
  Slot thread;
  Slot blocks[3];
  std::vector<Storage> arrays;
  std::vector<Transfer> transfers;
  std::vector<AtomicStep> atomics;
  std::vector<IndexCheck> index_checks;
  std::vector<Assert> requirements;
  std::vector<PrintStep> prints;
  std::vector<ExternStep> calls;
  std::vector<Lanewise> lanewise;
  std::vector<AsyncMove> asyncs;
  std::vector<BoxMove> boxes;
  std::vector<BoxStore> box_stores;
  std::vector<MapStep> map_steps;
  std::vector<MbarrierStep> mbarriers;
  std::vector<Product> products;
  std::vector<GroupProduct> group_products;
  std::vector<CollectiveOp> collectives;
  std::vector<Barrier> named_barriers;
  std::vector<RoleCode> roles;        // at most one instruction starts them
  std::vector<ir::Expr> expressions;  // for messages
  std::vector<SourceLoc> locs;        // by statement
  int64_t below = 0, above = 0;       // bytes of the frame on either side of offset zero
  int mask_depth = 1;
  bool has_bulk_copies = false;
  bool has_pieces = false;      // GPUs without bulk copies run it too
  bool in_block_order = false;  // results depend on the order of blocks
  bool orders_blocks = false;   // by acquiring atomics; implies in_block_order

  /// True if more than the barriers of warps, blocks and clusters orders threads.
  bool parts_meet() const { return !named_barriers.empty() || !mbarriers.empty() || orders_blocks; }
};

enum class Checks : uint8_t { off, on };

/// Compiles `program`. `checks` adds the values that traps need: index values, extents, overflow
/// and divisor checks. Throws Error of kind trap, code UNINITIALISED, for a variable read outside
/// its scope, and of kind unsupported for an operation without a column op (arithmetic on 8-bit
/// floats, for example).
Bytecode compile(const Program& program, Checks checks);

}  // namespace tessera::codegen::cpu
