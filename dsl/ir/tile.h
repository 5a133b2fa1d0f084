#pragma once
// The tile IR: what the author wrote. Built by dsl/builder.h, immutable afterwards, lowered by
// codegen/lower.h.

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/ir/expr.h"
#include "dsl/ir/extern_function.h"
#include "dsl/layout/mma.h"

namespace tessera::ir {

/// `cluster`: shared memory of a block of the same cluster.
enum class Space : uint8_t { global, shared, cluster, fragment, local, scalar };
TESSERA_API std::string_view name(Space space);

struct Buffer;
using BufferRef = std::shared_ptr<const Buffer>;

/// A block of storage, a reshaped view of one (`alias_of`), or the corresponding buffer of another
/// block of the cluster (`alias_of` and `block`).
struct Buffer {
  std::string name;
  DType dtype = DType::f32;
  Space space = Space::global;
  int id = 0;                 // dense within one kernel, in creation order
  std::vector<Expr> shape;    // constants except for global buffers
  std::vector<Expr> strides;  // global only, in elements
  int64_t align =
      16;  // global: bytes, declared alignment of the base pointer (checked by the host)
  /// The author's name, if the compiler made this buffer to replace his; empty: `name`.
  std::string stands_for = {};
  int num_version_dims = 0;  // leading dimensions that the compiler added
  bool is_output = false;    // global
  bool optional = false;     // global: may be null
  bool may_alias = false;    // global: may share memory with the others of which this is said
  bool dynamic = false;  // local: indices may be known at run time only, so it lies in local memory
  Expr address;          // global: u64 address of the first element; null = a tensor parameter
  BufferRef map;         // at an address: holds its tensor map; null = it has none
  Expr map_row;          // the first index of `map`
  BufferRef alias_of;    // reshape: same storage, same element order
  Expr block;            // cluster: rank of the block that owns it
  int ring = -1;         // shared: the ring whose stages hold it, in Kernel::rings; -1 = none
  std::shared_ptr<const layout::Layout> layout;  // fragment: given by the author, else inferred
  SourceLoc loc;
};

/// How likely global memory is to be accessed again. A hint never changes values.
enum class CacheHint : uint8_t {
  none,
  evict_first,  // not needed soon: the first to leave both caches
  evict_last,   // others will read it: the last to leave both caches
  no_allocate,  // allocates no line in L1
};
TESSERA_API std::string_view name(CacheHint hint);

/// An index into a tile that is smaller than its buffer: begin <= index < begin + extent. Other values
/// are undefined; the checked executor traps.
struct TileIndex {
  Expr index, begin, extent;
};

/// The author's promises and demands for an access.
struct AccessTerms {
  bool unchecked = false;  // bounds vouched for: no guard, the checked executor traps
  CacheHint cache = CacheHint::none;
  std::vector<TileIndex> tile_indices = {};
};

/// A rectangular part of a buffer. A null `extents[d]` means that one value indexes dimension d,
/// which is not part of the region's shape. `order` lists the other dimensions in the region's
/// order (a transposed view permutes it).
struct Region {
  BufferRef buffer;
  std::vector<Expr> offsets;
  std::vector<Expr> extents;
  std::vector<int> order;
  AccessTerms terms;
};

enum class LoopKind : uint8_t { serial, unrolled, vectorized, parallel, pipelined };
enum class ReduceOp : uint8_t { sum, max, absmax, min };
enum class SyncKind : uint8_t { block, warp, cluster, grid };
TESSERA_API std::string_view name(SyncKind kind);
/// The engine of a copy. Threads load and store; the others work in the background, between global and shared memory.
enum class Engine : uint8_t {
  automatic,  // the compiler chooses
  tensor,     // boxes of a tensor map, from sm_90 on; before, pieces, or stores of threads
  pieces,     // 4, 8 or 16 bytes of each thread (cp.async): no tensor copies
  bulk,       // a bulk copy per row: Ref::bulk
  threads,
};
TESSERA_API std::string_view name(Engine engine);
/// Whether one tensor copy fills a tile in all blocks of a cluster.
enum class Multicast : uint8_t {
  automatic,  // where the blocks provably copy the same tile
  never,
  required,  // the author vouches that they do
};
TESSERA_API std::string_view name(Multicast multicast);
/// When a copy from global to shared memory has to be there.
enum class CopyTime : uint8_t {
  at_once,  // for the next statement
  awaited,  // for the author's wait: an error if the hardware cannot copy in the background
  ahead,  // for a later round of a pipelined loop, or for the takes of a ring: in the background if possible
};
/// How a copy is made: first what the author asks for, from codegen/passes/choose_copies on what is done. Then the engine is
/// not automatic, and a multicast is `required` or `never`.
struct CopyPlan {
  Engine engine = Engine::automatic;
  Multicast multicast = Multicast::automatic;
  CopyTime when = CopyTime::at_once;
};
enum class CollectiveKind : uint8_t {
  shuffle,       // value, source lane
  shuffle_xor,   // value, lane mask
  shuffle_up,    // value, delta: lanes without a source keep their own value
  shuffle_down,  // value, delta
  reduce_add,
  reduce_min,
  reduce_max,
  reduce_and,
  reduce_or,  // u32/i32 over the warp; same result in every lane
  vote_any,
  vote_all,   // boolean -> boolean
  ballot,     // boolean -> u32
  match_any,  // u32/i32/u64/i64 -> u32 mask of lanes with an equal value
};
enum class AtomicOp : uint8_t { add, max, min, exchange, compare_exchange, load };
/// Relaxed atomics order nothing else; acq_rel ones also order the thread's other accesses.
enum class MemoryOrder : uint8_t { relaxed, acq_rel };
TESSERA_API std::string_view name(LoopKind kind);
TESSERA_API std::string_view name(ReduceOp op);
TESSERA_API std::string_view name(AtomicOp op);
TESSERA_API std::string_view name(CollectiveKind kind);

struct Stmt;
using Body = std::vector<Stmt>;

struct Let {
  VarRef var;
  Expr value;
  bool is_vouched = false;  // the author says that all threads of the block find the same
};
struct ElementLoad {
  VarRef var;
  BufferRef buffer;
  std::vector<Expr> indices;
  AccessTerms terms;
};
struct ElementStore {
  BufferRef buffer;
  std::vector<Expr> indices;
  Expr value;
  AccessTerms terms;
};
/// buffer[indices] = op(buffer[indices], value) in one indivisible step, on shared or global memory. A load
/// writes nothing; with `until` the thread repeats it until this holds, which waits for another block.
struct Atomic {
  AtomicOp op;
  BufferRef buffer;
  std::vector<Expr> indices;
  Expr value;    // null: a load
  Expr compare;  // compare_exchange: the value is written where this was found
  VarRef old;    // what was found; null = not wanted
  MemoryOrder order = MemoryOrder::relaxed;
  AccessTerms terms;
  Expr until = {};  // load: a condition of `old`
};
struct Copy {
  Region from, to;
  CopyPlan plan = {};
  Expr outside = {};  // constant of the dtype of `to`, where `from` has no element; null = 0
  bool adds = false;  // to += from, each element by itself indivisible; `to` is global
  int token = -1;     // of a store: number of the author's token, -1 = nobody waits for it by name
};
struct Fill {
  Region to;
  Expr value;
};
struct Reduce {
  ReduceOp op;
  Region from, to;
  int axis;
};  // whole fragments; `to` is overwritten
/// Opens a reducer: a fragment whose copies hold the parts of different threads until it is
/// finalized. Every part starts from the identity of `op`.
struct ReducerInit {
  ReduceOp op;
  BufferRef reducer;
};
/// One contribution, made exactly once per iteration of the parallel loop around it.
struct ReducerUpdate {
  ReduceOp op;
  BufferRef reducer;
  std::vector<Expr> indices;
  Expr value;
};
/// Combines the parts and then `start` (null = none) into the fragment `to`, or, for a reducer of
/// one element, into `value`, the same in every thread.
struct ReducerFinalize {
  ReduceOp op;
  BufferRef reducer;
  Expr start;
  BufferRef to;
  VarRef value;
};
/// The treatment of f32 operands of a matrix product, of which the hardware uses 19 bits.
enum class Tf32 : uint8_t {
  round,     // to nearest, ties away from zero (cvt.rna), NaN kept
  truncate,  // the low 13 bits are ignored: for operands that are tf32 values already
};
/// The matrix instructions that compute a product.
enum class Instruction : uint8_t {
  automatic,  // the compiler chooses
  mma,        // mma.sync, of one warp: every target
  wgmma,      // of four warps, operands in shared memory: sm_90a
};
TESSERA_API std::string_view name(Instruction instruction);
/// How a product is computed. The author may give a part of the grid; codegen/passes/choose_products sets the rest.
struct ProductPlan {
  std::string_view
      atom;  // the matrix instruction: a name of codegen/products; empty until it is chosen
  layout::WarpGrid grid{
      0, 0, 1};  // of warps, or of groups of warps that issue one instruction; 0: not given
};
/// c += a * b; c is a fragment or a part of one, a and b too or shared. Parts begin at whole matrix
/// instructions. With several depths in the grid of warps, c[d] += the product of the d-th part of k.
struct Gemm {
  Region a, b, c;  // [m, k], [k, n], [m, n] or [depths, m, n]
  ProductPlan plan = {};
  Instruction instruction = Instruction::automatic;  // asked for
  Tf32 tf32 = Tf32::round;
  int promote = 0;  // 8-bit floats by wgmma: so much of k is summed up apart; 0 = all
};
struct Loop {
  LoopKind kind;
  std::vector<VarRef> vars;   // parallel: one per dimension; else one
  Expr begin;                 // serial; 0 otherwise
  std::vector<Expr> extents;  // parallel: constants; serial: [end]
  Expr step;                  // serial: positive; 1 otherwise
  Body body;
  std::string label = {};  // what the author wrote, where it was not a loop: "copy x -> x_frag"
  // parallel: the loop of a copy, of rows that an index chooses or in pieces. Lets and loads give the place of the row,
  // then an element is loaded and stored.
  std::optional<CopyPlan> plan = {};
  int stages = 1;         // pipelined: buffers of a tile that is copied ahead
  bool in_place = false;  // pipelined: copies go into the buffer that the iteration has read
  bool across = false;    // pipelined: behind it stand the first copies for the next round around
  bool producer = false;  // pipelined: a role of its own makes the copies
  bool rolled = false;    // serial: the compiler of the text writes its body once

  // Iterations that copies are issued ahead.
  int ahead() const { return in_place ? stages : stages - 1; }
};
struct If {
  Expr condition;
  Body then, otherwise;
};
struct Sync {
  SyncKind kind;
};
/// A warp collective; all threads of the warp must take part.
struct Collective {
  VarRef var;
  CollectiveKind kind;
  std::vector<Expr> args;
  int width = 32;
};
struct Assume {
  Expr condition;
};
/// Whether an optional tensor was given.
struct Present {
  VarRef var;
  BufferRef buffer;
};
/// Begins a tensor at the address that a value gives (Buffer::address), or a view of the shared memory
/// of the block that a value names (Buffer::block).
struct Pointer {
  BufferRef buffer;
};
/// Stops the kernel with `message` where the condition does not hold. Or goes on, having noted the
/// number of one of Kernel::reports.
struct Assert {
  Expr condition;
  std::string message;
  int report = -1;  // none: stops
};
/// One line of text per thread; each {} is the next argument. Or an event of a warp's timeline: mark n of
/// Kernel::marks, named `text`, begins (2 * n) or ends (2 * n + 1). It touches no data. The two stand in one body.
struct Print {
  std::string text;
  std::vector<Expr> args;
  int event = -1;  // none: prints

  bool is_mark() const { return event >= 0; }
  bool begins() const { return event % 2 == 0; }  // of a mark
};
/// Between this kernel and its neighbours in the stream, where the launch lets them overlap.
enum class DependencyKind : uint8_t {
  wait,     // for what the kernel before has written
  trigger,  // the next kernel may start
};
struct Dependency {
  DependencyKind kind;
};
struct ExternCall {
  VarRef var;
  std::shared_ptr<const ExternFunction> function;
  std::vector<Expr> args;
};
/// Closes the group of the asynchronous copies since the last commit.
struct AsyncCommit {
  int group = -1;  // number of the author's token, -1 = nobody waits for it by name
};
/// Waits until the copies of a group have landed, or until at most `pending` groups have not.
struct AsyncWait {
  int group = -1;  // of an AsyncCommit; -1 = `pending` says it
  int pending = 0;
};
/// Waits for the tensor store of a token and those before it: until the elements are in memory, or, with
/// `of_reads`, until the tile may be written again.
struct StoreWait {
  int token = -1;  // of a Copy
  bool of_reads = false;
};
/// Threads that meet the condition leave the kernel.
struct Return {
  Expr condition;
};
/// The threads of the block part into roles, and each runs a body of its own. The last statement of a
/// kernel, at its top level.
struct Roles {
  struct Role {
    std::string name;
    int first = 0, count = 0;  // threads of the block: whole warps
    int registers = 0;         // of each thread, on sm_90a; 0 = as launched
    VarRef thread;             // of the role, from 0
    Body body;
    SourceLoc loc;
  };
  std::vector<Role> roles;
};
/// The threads of a role fill the next stage of a ring, or take what the next stage holds.
struct RingTurn {
  int ring = 0;  // in Kernel::rings
  bool fills = false;
  VarRef stage;
  Body body;
};
/// Threads that meet the condition leave the serial or pipelined loop whose body this statement ends.
struct Break {
  Expr condition;
  bool together = false;  // thread IR: the body holds what all threads of the block do together
};

struct Stmt {
  std::variant<Let, ElementLoad, ElementStore, Atomic, Copy, Fill, Reduce, ReducerInit,
               ReducerUpdate, ReducerFinalize, Gemm, Loop, If, Sync, Collective, Assume, Present,
               Pointer, Assert, Print, Dependency, ExternCall, AsyncCommit, AsyncWait, StoreWait,
               Roles, RingTurn, Break, Return>
      node;
  SourceLoc loc;
  bool manual_sync = false;  // in a region where only the author's barriers stand
};

inline bool is_mark(const Stmt& stmt) {
  const auto* print = std::get_if<Print>(&stmt.node);
  return print != nullptr && print->is_mark();
}
/// Drops all marks, at any depth.
TESSERA_API void drop_marks(Body& body);

/// True if the threads of the block share the work of the statement.
TESSERA_API bool is_of_block(const Stmt& stmt);

/// The author's name of a statement of all threads of the block, which no role may hold; empty for other
/// statements.
///
///   refused_in_role(stmt);  // "k.sync_grid"
TESSERA_API std::string_view refused_in_role(const Stmt& stmt);

/// Stages of shared tiles that one role fills and others take, in turn.
struct Ring {
  int stages = 1;
  std::vector<BufferRef> tiles;  // of one stage
  SourceLoc loc;
};

/// A whole kernel.
struct Kernel {
  std::string name;
  std::vector<BufferRef> tensors;  // global buffers in parameter order
  std::vector<VarRef> dims;        // dynamic extents and strides
  std::vector<VarRef> scalars;     // scalar parameters
  std::vector<Expr> grid;          // 1 to 3 extents
  VarRef thread;
  std::vector<VarRef> blocks;
  int threads = 128;
  int min_blocks_per_sm = 0;  // 0 = not stated
  int cluster = 1;            // blocks, along the first axis of the grid
  Body body;
  std::vector<Ring> rings;
  std::vector<std::string> reports;  // what Builder::report_unless may tell
  std::vector<std::string> marks;    // names of Builder::mark
  /// The block whose warps note their marks, with x fastest. None: lowering begins by dropping all marks.
  std::optional<int64_t> marked_block = {};
  int num_vars = 0;
  int num_buffers = 0;
};

/// Readable text of the whole kernel, stable.
TESSERA_API std::string to_string(const Kernel& kernel);

}  // namespace tessera::ir
