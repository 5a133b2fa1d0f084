#pragma once
// The language: a kernel is C++ that calls a Builder. Every call records one statement of the tile
// IR with the author's line; misuse throws an Error of kind program at that line, before any CUDA
// exists.

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/error.h"
#include "dsl/ir/tile.h"
#include "dsl/reducer.h"
#include "dsl/roles.h"
#include "dsl/tile.h"
#include "dsl/value.h"

namespace tessera::dsl {

using ir::CacheHint;
using ir::ExternFunction;
using ir::MemoryOrder;
using ir::ReduceOp;

/// Facts about a dim or a stride.
struct DimOptions {
  int64_t multiple_of = 1;  // the host checks it on every call
  /// For k.dim: an i64 that may be 2^31 or more. Its indices are computed in i64: begin with i64(at.x).
  bool wide = false;
};

/// How a tensor lies in memory, and whether it may be absent or alias another.
struct TensorOptions {
  std::vector<Arg> strides = {};  // in elements, one per dimension; empty = row-major
  /// Alignment of the base pointer in bytes; the host checks it. 0 = 16, or the size of the element
  /// for a tensor of one element.
  int64_t align = 0;
  bool optional = false;  // may be null; use it in Builder::if_present only
  /// May share memory with other tensors that say the same. Their reads and writes stay in program
  /// order, which may cost speed. A call whose outputs overlap any other tensor is refused.
  bool may_alias = false;
};

/// The shape of a block and of a cluster.
struct LaunchOptions {
  int threads = 128;          // of a block
  int min_blocks_per_sm = 0;  // launch bound, capped by what an SM of the target holds; 0 = none
  /// Blocks of a cluster: neighbours along the first axis of the grid, whose extent is a multiple.
  /// They run together and reach each other's shared memory. 1 to 16 (every device runs 8), from
  /// sm_90 on.
  int cluster = 1;
};

/// The values that a copy reads outside of a tensor, and who copies.
struct CopyOptions {
  Arg outside = 0;  // a constant of the target's dtype; reads outside a global tensor give it
  /// Carries out a copy that a pipelined loop issues ahead or that fills a ring, or one from a shared tile to a tensor.
  /// Engine::tensor, from sm_90 on, fails with COPY_ENGINE where a tensor copy is impossible, and names the first
  /// condition. A tile of more than 256 columns goes in panels: a multiple of 8 rows of a multiple of 32 bytes. Several
  /// copies may fill a tile: each a multiple of 8 rows, from a constant multiple of 8 on.
  ir::Engine engine = ir::Engine::automatic;
  /// For a tensor copy that fills a ring, in a launch with clusters: each block copies a part of the tile into all
  /// blocks. Where the tile is not provably the same, Multicast::required vouches for it (the executor traps:
  /// MULTICAST); it fails with COPY_ENGINE where such a copy is impossible.
  ir::Multicast multicast = ir::Multicast::automatic;
};

/// An asynchronous copy in flight; see Builder::copy_async.
class AsyncToken {
 private:
  friend class Builder;
  AsyncToken(int group, int scope, bool is_store = false)
      : group_(group), scope_(scope), is_store_(is_store) {}
  int group_, scope_;
  bool is_store_;  // to global memory: `group_` is its number
};

/// How the warps of a block share a product.
struct GemmOptions {
  /// Warps along the rows and columns of the product. 0 = the compiler chooses the grid that reads
  /// the operands least often. rows x columns x depths is the number of warps of the block.
  int warp_rows = 0;
  int warp_columns = 0;
  /// Split-K over warps: with more than 1 the result is [warp_depths, m, n], the partial products, and
  /// the author adds them.
  int warp_depths = 1;
  ir::Tf32 tf32 = ir::Tf32::round;  // of f32 operands
  /// Automatic takes wgmma where the target has it and the product is made for it, which
  /// `tessera show --stage explain` tells. With wgmma a product that is not is an error.
  ir::Instruction instruction = ir::Instruction::automatic;
  /// Products of 8-bit floats by wgmma, whose sums keep 13 bits: after so many of k a fresh sum is added
  /// to c in f32. 0 = never.
  int promote = 128;
};

/// Block indices of the launch.
struct BlockIndex {
  Value x, y, z;
};

/// A tensor at a run-time address.
struct PointerOptions {
  std::vector<Arg> strides = {};  // in elements; empty = row-major
  int64_t align = 0;       // bytes that the address is a multiple of; 0 = the size of an element
  bool is_output = false;  // may be written
  /// Memory for the tensor map, by which tensor copies take boxes of the tensor on sm_90a, sm_100a and sm_120a: a
  /// row of an output u64 [rows, 16] with align 128. The first warp of the threads that come to tensor_at writes
  /// the map. Each block has rows of its own, and a row may be written again only when all copies by its map have
  /// been awaited. The kernel does not write the tensor.
  std::optional<Ref> map = {};
};

enum class Axis : int {};  // k.reduce_sum(tile, sums, Axis(1))

/// Constants that a kernel looks up by an index; see Builder::table.
class TESSERA_API Table {
 public:
  /// The constant at `index`, an integer (DTYPE). Only the bits that tell the constants apart count, so an
  /// index outside gives one of them.
  Value operator()(const Arg& index, SourceLoc loc = SourceLoc::here()) const;

 private:
  friend class Builder;
  Recorder* recorder_ = nullptr;
  std::vector<Value> values_;
};

/// Where a local array lies.
struct LocalOptions {
  bool dynamic = false;  // in memory, for indices that are known at run time only
};

/// Which elements a scan combines. An exclusive scan begins with 0, or with the lowest value (-infinity).
struct ScanOptions {
  bool exclusive = false;  // without element i itself
  bool from_end = false;   // from the last element back to i
};

/// How a pipelined loop copies ahead.
struct PipelineOptions {
  int stages = 2;  // buffers of a tile that is copied ahead, 1 to 8
  /// False: stages - 1 iterations ahead; the copies into the buffer that the iteration before has read are issued
  /// when an iteration begins. True: `stages` iterations ahead; the copies into an iteration's own buffer are issued
  /// once its readers are through.
  bool in_place = false;
  /// True: the loop stands directly in a serial or persistent loop, and the first copies of that loop's next
  /// round are issued behind this one, so that the rest of the round runs while they go on. PIPELINE_ACROSS
  /// if they are not known then, or must not be read yet.
  bool across = false;
  /// True: a role of one more warp makes the copies and fills a ring of `stages` stages (2 to 8, RING_STAGES), in
  /// place or not. See Builder::pipelined. PRODUCER with `across`: the role goes on to the next round by itself.
  bool producer = false;
};

/// The order in which a persistent loop walks its tiles.
struct PersistentOptions {
  int64_t group = 1;  // neighbours along the last axis that are walked before the other axis moves
  /// In a launch with clusters: the axis along which the blocks of a cluster take neighbours, in the same
  /// round. Surplus blocks take part with indices beyond the extent. -1: each block by itself.
  int share = -1;
};

/// The body of a loop over one index: `[&](Value i) { ... }`.
template <class Fn>
concept LoopBody = std::invocable<const Fn&, Value>;

/// The body of k.loop: takes the number of the round, or nothing.
template <class Fn>
concept RoundBody = LoopBody<Fn> || std::invocable<const Fn&>;

/// A condition of the value of a cell: `[&](Value now) { return now >= 3; }`. An element, which can be
/// called as a tensor is, is a value to wait for.
template <class Fn>
concept WaitCondition =
    std::is_invocable_r_v<Value, const Fn&, Value> && !std::is_convertible_v<const Fn&, Arg>;

/// The body of a loop over one or two axes: one Value per axis.
template <class Fn>
concept TileBody = std::invocable<const Fn&, Value> || std::invocable<const Fn&, Value, Value>;

/// The body of a loop over one to four extents: one Value per extent.
template <class Fn>
concept IterationBody = TileBody<Fn> || std::invocable<const Fn&, Value, Value, Value> ||
    std::invocable<const Fn&, Value, Value, Value, Value>;

/// Throws if a loop body takes another number of indices than the loop has extents.
TESSERA_API void require_arity(const Recorder& recorder, size_t extents, int arity, SourceLoc loc);

/// Records one kernel. The capitals in these comments are error codes: dsl/ERRORS.md explains them.
///
/// Limits keep the passes within the stack: 256 dependent operations in a row (EXPRESSION_DEPTH; `let`
/// starts again), 65536 operations in one value (EXPRESSION_SIZE), 64 nested loops and branches (NESTING).
class TESSERA_API Builder {
 public:
  explicit Builder(std::string name);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // ---- Signature
  /// A dynamic extent: i32, at least 1 inside the kernel, below 2^31 - 2^24; or, if `wide`, an i64 up to
  /// 2^47. NAME if another parameter has the name, SHAPE if `multiple_of` is below 1. `stride` and `scalar`
  /// throw the same.
  ///
  ///   auto n = k.dim("n", {.wide = true});   // a flat view of a large tensor
  ///   auto at = k.launch({ceil_div(n, 1024)});
  ///   auto first = k.let("first", i64(at.x) * 1024);
  Value dim(std::string name, DimOptions options = {}, SourceLoc loc = SourceLoc::here());
  /// A dynamic stride in elements: i64, not negative.
  Value stride(std::string name, DimOptions options = {}, SourceLoc loc = SourceLoc::here());
  /// A scalar parameter.
  Value scalar(std::string name, DType dtype, SourceLoc loc = SourceLoc::here());
  /// An i32 that the launch gives: the blocks that run at once if a multiprocessor holds `per_sm` (1 .. 32) of
  /// them; on the CPU those of 132 multiprocessors. For the grid of a persistent kernel. LAUNCH for another
  /// `per_sm`, ORDER behind launch().
  ///
  ///   auto at = k.launch({min(tiles, k.device_blocks())});
  Value device_blocks(int per_sm = 1, SourceLoc loc = SourceLoc::here());
  /// A global tensor. The kernel reads an input, and reads or writes an output.
  ///
  /// The compiler orders accesses of different threads to shared memory only. Put a k.sync() between
  /// accesses of different threads of a block to one element of an output, and a k.sync_grid() or
  /// acq_rel atomics between accesses of different blocks. The executor traps where one is missing, and
  /// where several blocks write one element (RACE).
  Ref input(std::string name, DType dtype, std::vector<Arg> shape, TensorOptions options = {},
            SourceLoc loc = SourceLoc::here());
  Ref output(std::string name, DType dtype, std::vector<Arg> shape, TensorOptions options = {},
             SourceLoc loc = SourceLoc::here());
  /// Runs `then` if the call gives the optional tensor, else `otherwise`. OPTIONAL for an access
  /// anywhere else. For a tensor that is not optional only `then` is recorded.
  void if_present(const Ref& tensor, const std::function<void()>& then,
                  const std::function<void()>& otherwise = nullptr,
                  SourceLoc loc = SourceLoc::here());
  /// The tensor at a run-time address (u64 or i64, not null), read from a table for example. Accesses are
  /// as wide as `align` allows. Only bounds guards check the extents. The address belongs to the device
  /// that runs the kernel.
  ///
  ///   auto row = k.tensor_at(table(layer), DType::bf16, {tokens, 7168}, {.align = 16});
  ///
  /// With `map` tensor copies take boxes of it; MAP_PLACE if the map is no row as PointerOptions asks for.
  ///
  ///   auto x = k.tensor_at(table(group), DType::bf16, {rows(group), 512},
  ///                        {.align = 16, .map = maps.tile({group, 0}, {1, 16})});
  Ref tensor_at(Arg address, DType dtype, std::vector<Arg> shape, PointerOptions options = {},
                std::string name = "pointee", SourceLoc loc = SourceLoc::here());
  /// Sets grid and block. Call it once, before any statement, with one to three grid extents. CLUSTER
  /// for an impossible cluster. A target below sm_90, or a grid that is no multiple of the cluster,
  /// fails at launch.
  BlockIndex launch(std::vector<Arg> grid, LaunchOptions options = {},
                    SourceLoc loc = SourceLoc::here());
  /// Index of the thread in its block, of the lane in its warp, of the warp in its block.
  Value thread() const;
  Value lane() const;  // thread % 32
  Value warp() const;  // thread / 32
  /// Index of the block in its cluster.
  Value cluster_rank() const;

  // ---- Memory
  /// In place of an index: the whole dimension stays free.
  ///   k.copy(q(batch, k.all, head), tile);   // q: [batch, length, heads, dim]
  static constexpr All all{};
  /// A buffer of the block, which all its threads see. SMEM_LIMIT if the block needs more than its target has: 227 KiB on sm_90.
  /// Buffers that are not in use together, such as the tiles of a pipelined loop and what comes after it,
  /// share memory where that lets more blocks run.
  TileRef shared(DType dtype, std::vector<int64_t> shape, std::string name = "tile",
                 SourceLoc loc = SourceLoc::here());
  /// A tile of the block in registers. The compiler decides which thread holds which element. REGISTERS
  /// if it cannot fit into 255 registers per thread.
  TileRef fragment(DType dtype, std::vector<int64_t> shape, std::string name = "frag",
                   SourceLoc loc = SourceLoc::here());
  /// A fragment with a layout of the author.
  TileRef fragment(DType dtype, const layout::Layout& layout, std::string name = "frag",
                   SourceLoc loc = SourceLoc::here());
  /// A private array of each thread, in registers. Indices must be constant after unrolling
  /// (REGISTER_INDEX).
  Ref local(DType dtype, std::vector<int64_t> shape, std::string name = "local",
            SourceLoc loc = SourceLoc::here());
  /// The same; with `dynamic` any index will do, and the array lies in local memory, which is as far from a
  /// thread as global memory. The executor traps where an index is outside (OOB).
  ///   auto seen = k.local(DType::i32, {16}, {.dynamic = true}, "seen");
  ///   seen(x(i) % 16) += 1;
  Ref local(DType dtype, std::vector<int64_t> shape, LocalOptions options,
            std::string name = "local", SourceLoc loc = SourceLoc::here());
  /// One mutable value per thread.
  Ref var(DType dtype, Arg init, std::string name = "value", SourceLoc loc = SourceLoc::here());
  /// The buffer of block `rank` (i32) of the cluster that corresponds to `mine` (DSMEM). Its elements can
  /// be read, written, copied and changed atomically. The author puts a k.sync_cluster() before the
  /// first access, and between accesses of two blocks to one element; the executor traps where it is
  /// missing. The compiler keeps a block alive until no other block needs its memory. CLUSTER if `mine`
  /// is not shared or the launch has no cluster.
  ///
  ///   k.parallel({experts}, [&](Value e) { counts(e) = ...; });
  ///   k.sync_cluster();
  ///   k.unrolled(8, [&](Value rank) { sum += k.of_block(counts, rank)(k.thread()); });
  Ref of_block(const Ref& mine, Arg rank, SourceLoc loc = SourceLoc::here());
  /// Constants in the code: a look-up is a choice by each bit of the index, with at most one instruction
  /// per constant and no memory. 1 to 256 of them (TABLE), each exact in `dtype`; longer tables are inputs.
  ///
  ///   auto signs = k.table(DType::f32, {1, -1});
  ///   k.parallel({4, 64}, [&](Value r, Value c) { tile(r, c) *= signs((r + c) % 2); });
  Table table(DType dtype, std::vector<Arg> values, SourceLoc loc = SourceLoc::here());
  /// Names a value. The generated code computes it once.
  Value let(std::string name, Arg value, SourceLoc loc = SourceLoc::here());
  /// The value, for which the author vouches that all threads of the block, or of the role, find the same: barriers and
  /// tile operations may stand under conditions and in loops of it, tensor copies also at coordinates of it. The
  /// executor traps where two threads differ (UNIFORM).
  ///
  ///   const Value last = k.uniform(k.shuffle(count, 31));   // by one warp
  Value uniform(Arg value, SourceLoc loc = SourceLoc::here());

  // ---- Tile operations, by all threads of the block: SYNC_DIVERGENT under a condition that uses the
  // thread index
  /// Copies a tile. Extents are equal once indices and extents of 1 are dropped; dtypes convert on the way. Reads
  /// outside a global tensor give 0, writes outside are dropped. COPY_OVERLAP if both are parts of one
  /// shared buffer that certainly overlap.
  void copy(const Ref& from, const Ref& to, SourceLoc loc = SourceLoc::here());
  /// Copies a tile; reads outside give `options.outside`. COPY_OUTSIDE if the value is not a
  /// constant, or not 0 where `from` is not global.
  ///   k.copy(scores.tile({row, 0}, {8, 64}), tile, {.outside = -1.0f});
  ///
  /// From a shared tile to a tensor by Engine::tensor, the copy engine stores (TMA), while the threads go on. The
  /// compiler waits before the tile is written again, before the kernel reads the tensor after a barrier and before
  /// it signals; in a region of manual_sync the author does, by k.wait_read and k.wait. Two such stores of one element
  /// need a k.wait between them. The hardware cannot begin before the tensor: a place that is not proved to be at 0 or
  /// more is a multiple of the tile, by which it is outside as a whole, or COPY_ENGINE.
  ///   k.copy(tile, y.tile({row, 0}, {64, 128}), {.engine = ir::Engine::tensor});
  void copy(const Ref& from, const Ref& to, CopyOptions options, SourceLoc loc = SourceLoc::here());
  /// The same where one side has the extents.
  ///   k.copy(x.tile({row, 0}), tile);
  void copy(const TileAt& from, const Ref& to, CopyOptions options = {},
            SourceLoc loc = SourceLoc::here());
  void copy(const Ref& from, const TileAt& to, CopyOptions options = {},
            SourceLoc loc = SourceLoc::here());
  /// Adds a shared tile or a fragment to a part of an output: to += from, each element by itself indivisible, of f32,
  /// f16, bf16, i32, u32 or u64 on both sides (DTYPE). Additions outside of the tensor are dropped. By tensor stores
  /// from sm_90 on, if a tensor store is possible, else by atomics; `explain` says why. The order of the additions to
  /// one element is open: where an element of floats may get several, `explain` notes COPY_ADD_ORDER. Atomics
  /// count subnormal numbers of f32 as zeros, tensor stores add them. ATOMIC unless it goes from the chip to an output;
  /// COPY_ENGINE as copy.
  ///
  ///   k.copy_add(part, sum.tile({row, column}, {128, 128}));   // sum starts with zeros
  void copy_add(const Ref& from, const Ref& to, CopyOptions options = {},
                SourceLoc loc = SourceLoc::here());
  /// Copies rows that an index chooses (a gather) to a tile, or a tile to such rows (a scatter). The tile has
  /// the rows as its first dimension. In a pipelined loop a gather to shared memory is issued ahead, if
  /// the index is not what the iteration computes; in the fill of a ring it goes on while the role fills other
  /// stages. `explain` says so, or why not. `.bulk()` before `.rows` asks for a bulk copy per row. Two rows of a
  /// scatter that are the same race.
  ///
  ///   k.copy(cache.rows(pages.tile({i * 64}, {64})), tile);
  void copy(const Rows& from, const Ref& to, SourceLoc loc = SourceLoc::here());
  void copy(const Ref& from, const Rows& to, SourceLoc loc = SourceLoc::here());
  /// Writes one value to every element of a tile.
  void fill(const Ref& to, Arg value, SourceLoc loc = SourceLoc::here());
  /// Starts a copy from global to shared memory. Use the tile only after a wait. Shapes and dtypes are
  /// equal; reads outside give 0. CPASYNC_WIDTH if the parts are not aligned runs of 4, 8 or 16 bytes.
  ///   auto copied = k.copy_async(x.tile({row, 0}, {8, 64}), tile);
  ///   ...                  // work that does not need the tile
  ///   k.wait(copied);      // the tile is there, for every thread of the block
  /// From a shared tile to a tensor it is a store of Engine::tensor; see copy.
  ///   auto stored = k.copy_async(tile, y.tile({row, 0}, {8, 64}));
  ///   k.wait_read(stored);  // the tile may be written again: the compiler puts it in where it is missing
  ///   k.wait(stored);       // y has the elements
  AsyncToken copy_async(const Ref& from, const Ref& to, SourceLoc loc = SourceLoc::here());
  AsyncToken copy_async(const TileAt& from, const Ref& to, SourceLoc loc = SourceLoc::here());
  AsyncToken copy_async(const Ref& from, const TileAt& to, SourceLoc loc = SourceLoc::here());
  AsyncToken copy_async(const Rows& from, const Ref& to, SourceLoc loc = SourceLoc::here());
  /// Waits for the copy of `token` and for all copies of its direction started before it. The elements of a store are
  /// in memory then; other threads read them after a k.sync().
  void wait(const AsyncToken& token, SourceLoc loc = SourceLoc::here());
  /// Waits until the tile of a store may be written again. ASYNC_TOKEN for a copy from global memory.
  void wait_read(const AsyncToken& token, SourceLoc loc = SourceLoc::here());
  /// Waits until at most `pending` of the copies started last are in flight.
  void wait_pending(int pending, SourceLoc loc = SourceLoc::here());
  /// Reduces the fragment `from` over one axis into the fragment `to`. The dtype of `to` is that of `from`, or f32 for
  /// any float; 8-bit and 4-bit floats are summed into f32 alone (DTYPE). max, min and absmax drop NaN. A part or a
  /// transposed view of a fragment is copied into a fragment of its own first.
  void reduce_sum(const Ref& from, const Ref& to, Axis axis, SourceLoc loc = SourceLoc::here());
  void reduce_max(const Ref& from, const Ref& to, Axis axis, SourceLoc loc = SourceLoc::here());
  void reduce_min(const Ref& from, const Ref& to, Axis axis, SourceLoc loc = SourceLoc::here());
  void reduce_absmax(const Ref& from, const Ref& to, Axis axis, SourceLoc loc = SourceLoc::here());

  // ---- Arithmetic on whole tiles, see tile.h
  /// The tile in a fragment of its dtype; reads outside a global tensor give 0.
  Tile load(const Ref& from, SourceLoc loc = SourceLoc::here());
  /// Computes the tile now, into a fragment. For what is used more than once.
  Tile evaluate(const Tile& tile, SourceLoc loc = SourceLoc::here());
  /// Computes the tile and writes it to `to`, converted to its dtype. Extents of 1 repeat, or are dropped
  /// where `to` has fewer dimensions. SHAPE if the extents do not meet those of `to`.
  void store(const Tile& tile, const Ref& to, SourceLoc loc = SourceLoc::here());
  void store(const Tile& tile, const TileAt& to, SourceLoc loc = SourceLoc::here());
  /// The index of each element along an axis, i32, -1 = the last: for masks. It meets tiles of any extents. SHAPE where
  /// the statement has no such axis, or gives no extents.
  ///   auto seen = k.evaluate(select(j * 64 + k.index(Axis(1)) <= row + k.index(Axis(0)), s, lowest));
  Tile index(Axis axis = Axis(-1), SourceLoc loc = SourceLoc::here());
  /// Reduces a tile over one axis, of which an extent of 1 stays, so that the result meets the tile again;
  /// -1 = the last. Floats give f32. An expression is computed into a fragment first.
  Tile reduce_sum(const Tile& from, Axis axis = Axis(-1), SourceLoc loc = SourceLoc::here());
  Tile reduce_max(const Tile& from, Axis axis = Axis(-1), SourceLoc loc = SourceLoc::here());
  Tile reduce_min(const Tile& from, Axis axis = Axis(-1), SourceLoc loc = SourceLoc::here());
  Tile reduce_absmax(const Tile& from, Axis axis = Axis(-1), SourceLoc loc = SourceLoc::here());
  /// The largest or smallest value along an axis and its index, of which an extent of 1 stays. The lowest
  /// index wins among equal values; zeros of both signs are equal. NaN is dropped; where all are NaN the
  /// index is the last.
  ///
  ///   auto [score, expert] = k.argmax(k.load(scores(token)));
  TileBest argmax(const Tile& from, Axis axis = Axis(-1), SourceLoc loc = SourceLoc::here());
  TileBest argmin(const Tile& from, Axis axis = Axis(-1), SourceLoc loc = SourceLoc::here());

  /// `to[.., i, ..]` = sum (or maximum) of `from[.., 0 .. i, ..]` along one axis. Each side is a whole
  /// shared buffer or fragment of 1 or 2 dimensions and one dtype (i32, u32, i64, u64, f64 or f32); both
  /// may be the same buffer. Needs whole warps. The order of float sums depends on the shape and, for a single
  /// line, on the block size.
  ///
  ///   k.scan_sum(counts, ends, Axis(0));   // ends[i] = counts[0] + .. + counts[i]
  ///   k.scan_sum(counts, starts, Axis(0), {.exclusive = true});   // starts[i] = ends[i] - counts[i]
  void scan_sum(const Ref& from, const Ref& to, Axis axis, ScanOptions options = {},
                SourceLoc loc = SourceLoc::here());
  void scan_max(const Ref& from, const Ref& to, Axis axis, ScanOptions options = {},
                SourceLoc loc = SourceLoc::here());

  /// An accumulator of the whole block, see Reducers below: sum, max or min of f64, f32, i32 or
  /// i64.
  Reducer reducer(ReduceOp op, DType dtype, std::vector<int64_t> shape = {1},
                  ReducerOptions options = {}, std::string name = "reducer",
                  SourceLoc loc = SourceLoc::here());

  // ---- Atomics, on one element of a shared buffer or of an output tensor
  /// element = element + value, for i32, u32, i64, u64, f64, f32, f16 or bf16. Outside a global tensor
  /// nothing happens. Float sums depend on the order in which threads arrive. f32 sums in global memory flush
  /// subnormals to zero, as the instruction does.
  ///
  /// Aligned neighbours of a thread, 16 bytes of f32, f16 or bf16 at most, are one instruction from sm_90
  /// on, if the memory is global, the order relaxed and the old value not wanted; in shared memory two f16
  /// or bf16 are. `explain` says where not. A bf16 before sm_90 is a loop of compare and exchange.
  void atomic_add(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                  SourceLoc loc = SourceLoc::here());
  /// Adds each element of a tile, converted to the dtype of `to`; shapes meet as in store.
  ///
  ///   k.atomic_add(y.tile({row, column}, {64, 64}), Tile(part));   // split-K: y starts with zeros
  void atomic_add(const Ref& to, const Tile& tile, MemoryOrder order = MemoryOrder::relaxed,
                  SourceLoc loc = SourceLoc::here());
  /// Maximum / minimum of i32, u32, i64, u64, f64 or f32; NaN is dropped. Those of floats are loops of
  /// compare and exchange.
  void atomic_max(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                  SourceLoc loc = SourceLoc::here());
  void atomic_min(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                  SourceLoc loc = SourceLoc::here());
  /// The same, returning the old value (0 outside a global tensor). In a parallel loop they run once per
  /// iteration, even if the loop has fewer iterations than the block has threads.
  Value atomic_fetch_add(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                         SourceLoc loc = SourceLoc::here());
  Value atomic_fetch_max(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                         SourceLoc loc = SourceLoc::here());
  Value atomic_fetch_min(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                         SourceLoc loc = SourceLoc::here());
  /// Writes `value` and returns the old value, of i32, u32, i64, u64, f64 or f32.
  Value atomic_exchange(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                        SourceLoc loc = SourceLoc::here());
  /// Writes `value` if the element is `expected` (floats compare as bits). Returns the old value.
  Value atomic_compare_exchange(const Ref& element, Arg expected, Arg value,
                                MemoryOrder order = MemoryOrder::relaxed,
                                SourceLoc loc = SourceLoc::here());

  /// c += a * b on the tensor cores. a [m, k] and b [k, n] are shared buffers or fragments, c [m, n] is a
  /// fragment. Transpose a shared operand by a view: k.gemm(x, w.transposed(), sum). Keep an operand
  /// that every iteration of a loop uses in a fragment.
  ///
  /// A part of a fragment begins at constant multiples of 16 (rows), 8 (columns) and the step of k. Along an
  /// axis that several warps share the parts of a fragment are equal: choose `warp_rows` or `warp_columns`
  /// = 1 otherwise. Products that use one fragment need one grid of warps.
  ///
  ///   k.gemm(p, v.tile({0, 256}, {64, 256}), o.tile({0, 256}, {64, 256}));   // half of the columns of o
  ///
  ///   a, b                 c      m, n, k are multiples of
  ///   f32 (as tf32)        f32    16 x warp_rows, 8 x warp_columns, 8 x warp_depths
  ///   bf16, f16            f32    16 x warp_rows, 8 x warp_columns, 16 x warp_depths
  ///   e4m3, e5m2 (mixed)   f32    16 x warp_rows, 8 x warp_columns, 32 x warp_depths
  ///   i8                   i32    16 x warp_rows, 8 x warp_columns, 32 x warp_depths
  ///
  /// k is consumed in ascending steps of its multiple for one depth. Integers wrap. The executor adds c and
  /// the exact products of a step in f64, in ascending k, and rounds once to f32; the GPU may differ in
  /// the last bits. Below sm_89 the GPU takes 8-bit floats in two steps of 16, widened to f16.
  ///
  /// On sm_90a wgmma computes the product where m is a multiple of 64, the block is made of groups of four
  /// warps, and b is shared and not reshaped: bf16, f16 in any order; f32 with `tf32 = truncate`, i8 and
  /// 8-bit floats where k is the contiguous dimension of a and b. Its bits are those of mma.sync, but
  /// for 8-bit floats: see GemmOptions::promote.
  ///
  /// Errors: GEMM, SHAPE, DTYPE. Example: tests/codegen/language/gemm_test.cpp.
  void gemm(const Ref& a, const Ref& b, const Ref& c, GemmOptions options = {},
            SourceLoc loc = SourceLoc::here());
  /// The same of a tile, which is computed into a fragment first unless it is one.
  ///   k.gemm(cast(DType::bf16, p), v_tile, o);
  void gemm(const Tile& a, const Ref& b, const Ref& c, GemmOptions options = {},
            SourceLoc loc = SourceLoc::here());
  void gemm(const Ref& a, const Tile& b, const Ref& c, GemmOptions options = {},
            SourceLoc loc = SourceLoc::here());

  // ---- Control flow
  /// Spreads iterations over the threads of the block, in no order. `body` takes one Value per extent (1
  /// to 4). ITERATION_ORDER if an iteration reads from shared memory what another writes.
  template <IterationBody Fn>
  void parallel(std::vector<int64_t> extents, const Fn& body, SourceLoc loc = SourceLoc::here());
  /// The same over the elements of a tile.
  ///   k.parallel(tile, [&](Value r, Value c) { sum(r, c) += tile(r, c); });
  template <IterationBody Fn>
  void parallel(const Ref& tile, const Fn& body, SourceLoc loc = SourceLoc::here()) {
    parallel(tile.extents(loc), body, loc);
  }
  /// for (i = begin; i < end; i += step), in every thread. A negative step goes down to above `end`. The
  /// step may be a value of run time; the executor traps where it is 0 (FALSE_ASSUME). break_if may leave it:
  /// what stands before the first break_if is checked as if it ran in every round.
  ///
  ///   k.serial(length - 1, -1, [&](Value i) { ... }, -1);   // the last one first
  template <LoopBody Fn>
  void serial(Arg begin, Arg end, const Fn& body, Arg step = 1, SourceLoc loc = SourceLoc::here()) {
    loop(ir::LoopKind::serial, begin, end, step, body, loc);
  }
  /// As serial, but NVRTC does not unroll it. For loops with long bodies or few rounds, whose unrolled forms cost more
  /// compile time than they save: topk_select, with 22, compiles in two thirds of the time.
  template <LoopBody Fn>
  void rolled(Arg begin, Arg end, const Fn& body, Arg step = 1, SourceLoc loc = SourceLoc::here()) {
    loop(ir::LoopKind::serial, begin, end, step, body, loc, {}, true);
  }
  /// Runs `body` until threads leave by break_if. `body` takes the number of the round, or nothing. At most
  /// 2^31 - 1 rounds. BREAK if no break_if stands in it.
  ///
  ///   k.loop([&] {
  ///     ...
  ///     k.break_if(found(0) >= wanted);   // the rest of the body is for the threads that stay
  ///     ...
  ///   });
  template <RoundBody Fn>
  void loop(const Fn& body, SourceLoc loc = SourceLoc::here()) {
    if constexpr (LoopBody<Fn>) {
      endless_loop(body, loc);
    } else {
      endless_loop([&](const Value&) { body(); }, loc);
    }
  }
  /// Threads for which the condition holds leave the innermost loop: k.loop, serial, pipelined or persistent
  /// (BREAK for another). It may stand under conditions. SYNC_DIVERGENT if the loop holds a tile operation or
  /// a barrier, and the condition may differ between threads of the block.
  void break_if(Arg condition, SourceLoc loc = SourceLoc::here());
  /// A persistent kernel's loop: all blocks of a 1-D grid share a domain of 1 or 2 axes, last axis
  /// fastest. Block b runs tiles b, b + grid, b + 2 grid, ... in order. `body` takes one Value per axis.
  ///
  ///   k.persistent({ceil_div(rows, 64), 4}, [&](Value row_tile, Value column_tile) { ... });
  template <TileBody Fn>
  void persistent(std::vector<Arg> tiles, const Fn& body, PersistentOptions options = {},
                  SourceLoc loc = SourceLoc::here());
  /// A serial loop whose copies from global to shared memory are issued ahead: a copied tile has `stages` buffers, and
  /// its copies run stages - 1 iterations ahead, in place `stages` (PipelineOptions).
  ///
  /// A copy stays in its iteration if its tile is used outside the loop, if the tile is read before it is
  /// copied, or if its place depends on what the iteration computes; `explain` says so. The first copies
  /// are issued before statements above the loop that only fill registers. Copies behind a
  /// break_if stay, and a loop that ends early waits for those under way. In a persistent or serial loop,
  /// `across` issues the first copies of its next round while this one ends.
  ///   k.pipelined(0, ceil_div(depth, 64), 3, [&](Value i) {
  ///     k.copy(x.tile({row, i * 64}, {16, 64}), tile);
  ///     k.parallel({16, 64}, [&](Value r, Value c) { sum(r, c) += tile(r, c); });
  ///   });
  ///
  /// With `producer` one more warp makes the copies that could go ahead, in a role of its own as in roles(), and
  /// runs the loops and conditions around the loop once more. The threads of the launch do all else: thread(), tile
  /// operations and sync() mean them. The block has 32 threads more; 128 on sm_90a, where that gives threads that
  /// multiply more registers. A copy stays with the threads of the launch if it converts, or if the kernel writes
  /// the tensor. One warp copies faster by Engine::tensor than in pieces.
  ///
  /// PRODUCER, with the line of the statement in the way, if a copy, or a condition or bound around the loop, depends
  /// on more than inputs and the indices of blocks and loops; if no copy can go; if the loop, or one around it, ends
  /// early or stands in manual_sync; for sync_grid, sync_cluster, return_if and roles anywhere in the kernel.
  ///   k.pipelined(0, ceil_div(depth, 64), {.stages = 4, .producer = true}, [&](Value i) { ... });
  template <LoopBody Fn>
  void pipelined(Arg begin, Arg end, int stages, const Fn& body,
                 SourceLoc loc = SourceLoc::here()) {
    loop(ir::LoopKind::pipelined, begin, end, 1, body, loc, {.stages = stages});
  }
  template <LoopBody Fn>
  void pipelined(Arg begin, Arg end, PipelineOptions options, const Fn& body,
                 SourceLoc loc = SourceLoc::here()) {
    loop(ir::LoopKind::pipelined, begin, end, 1, body, loc, options);
  }
  /// A loop over 0 .. extent - 1, unrolled. UNROLL_EXTENT unless the extent is constant.
  template <LoopBody Fn>
  void unrolled(int64_t extent, const Fn& body, SourceLoc loc = SourceLoc::here()) {
    loop(ir::LoopKind::unrolled, 0, extent, 1, body, loc);
  }
  /// Every global and shared access of the body becomes one vector access of `extent` elements.
  /// VEC_NOT_CONTIGUOUS says why an access cannot.
  template <LoopBody Fn>
  void vectorized(int64_t extent, const Fn& body, SourceLoc loc = SourceLoc::here()) {
    loop(ir::LoopKind::vectorized, 0, extent, 1, body, loc);
  }
  /// Runs `then` where the condition holds, else `otherwise`, in each thread by itself.
  void if_(Arg condition, const std::function<void()>& then, SourceLoc loc = SourceLoc::here());
  void if_else(Arg condition, const std::function<void()>& then,
               const std::function<void()>& otherwise, SourceLoc loc = SourceLoc::here());
  /// Threads for which the condition holds leave the kernel. RETURN_BEFORE_BARRIER if the other threads
  /// reach a barrier afterwards, RETURN_IN_PARALLEL in a parallel loop.
  void return_if(Arg condition, SourceLoc loc = SourceLoc::here());
  /// States a fact that the prover may use in the rest of the enclosing body, to leave out bounds guards.
  /// The author vouches for it; only the executor with traps checks it (FALSE_ASSUME).
  void assume(Arg condition, SourceLoc loc = SourceLoc::here());

  /// Stops the kernel with the message and the author's line if the condition does not hold. On a GPU
  /// the launch fails at the next synchronisation; the executor traps (ASSERT).
  void device_assert(Arg condition, std::string message, SourceLoc loc = SourceLoc::here());
  /// Notes that the condition does not hold, and goes on: for values that the caller promised. The kernel
  /// then does something safe. jit::take_value_errors returns the message.
  ///   k.report_unless(expert < experts, "argument 'ids' has a value out of range");
  void report_unless(Arg condition, std::string message, SourceLoc loc = SourceLoc::here());
  /// Prints one line per thread to standard output; each {} stands for the next value.
  ///   k.if_(k.thread() == 0, [&] { k.print("row {}: {}", {row, sum}); });
  void print(std::string text, std::vector<Arg> values = {}, SourceLoc loc = SourceLoc::here());
  /// Names what the statements of `body` do, for a picture of when each warp of a block does it: `tessera report
  /// --timeline`, jit::TimelineScope. Costs nothing otherwise: the marks are dropped before the kernel is lowered, and
  /// its CUDA text is the same without them. Marks nest. Each warp notes when its first lane begins and ends; work
  /// that goes on in the background, as copies and products do, is not waited for. MARK for an empty name, more than
  /// 100 names, a mark in a parallel loop, and a body that leaves its loop or the kernel.
  ///   k.mark("softmax", [&] { ... });
  void mark(std::string name, const std::function<void()>& body, SourceLoc loc = SourceLoc::here());
  /// Calls a CUDA device function.
  ///   static const ExternFunction half_down{.name = "__float2half_rz", ...};
  Value call(const ir::ExternFunction& function, std::vector<Arg> args,
             SourceLoc loc = SourceLoc::here());

  // ---- Signals between the blocks of a grid
  /// cell = value, or cell += value, once for the block: a block that waits for it sees everything that this block
  /// has written before. The cell is an element of an i32 or u32 output, which the caller sets before the first
  /// call. All threads of the block, or of the role around, come together (SYNC_DIVERGENT); a role's signal covers
  /// what its own threads have written, and what they know of other roles by a ring.
  ///
  ///   k.if_(k.thread() == 0, [&] { total(at.x) = sum; });   k.signal(ready(at.x), 1);
  void signal(const Ref& cell, Arg value, SourceLoc loc = SourceLoc::here());
  void signal_add(const Ref& cell, Arg value, SourceLoc loc = SourceLoc::here());
  /// Waits until the cell has the value, or one for which the condition holds: an expression without
  /// statements (WAIT_CONDITION). Outside of the tensor it does not wait. Afterwards the block sees what the
  /// blocks whose signals made the value had written before them. While a block may wait, only signals change
  /// the cell. All threads come together, as to a signal. Returns the value that ended the wait, the same in all
  /// threads; 0 outside of the tensor.
  ///
  /// A block may wait for any other: the launch of a kernel that waits is cooperative, and a grid that does not
  /// fit on the device at once fails. The executor traps where no block can go on (DEADLOCK).
  ///
  ///   k.wait_until(ready(at.x - 1), 1);
  ///   const Value parts = k.wait_until(arrived(tile), [&](Value now) { return now >= 2; });
  Value wait_until(const Ref& cell, Arg value, SourceLoc loc = SourceLoc::here());
  template <WaitCondition Fn>
  Value wait_until(const Ref& cell, const Fn& holds, SourceLoc loc = SourceLoc::here()) {
    return wait_for_signal(cell, holds, loc);
  }

  // ---- Roles (warp specialisation)
  /// Parts the threads of the block: each role runs its body, all at the same time. The last statement of
  /// the kernel, at its top level (ROLES_PLACE). What was stored before is there for all roles. Roles of
  /// `warpgroups` have the first threads, then those of `warps`, in their order; together they are the
  /// block. thread(), warp(), tile operations, fragments and sync() are of the role. Roles share tiles
  /// that nobody writes, and tiles of rings (SHARED_BETWEEN_ROLES). SYNC_ROLE for what all threads of the
  /// block do; ROLE_REGISTERS for registers that a multiprocessor does not have.
  ///
  ///   auto ring = k.ring({.stages = 4});
  ///   auto a_tile = ring.shared(kBf16, {128, 64});
  ///   k.roles({{.name = "load", .warps = 1, .body = [&] {
  ///              k.serial(0, steps, [&](Value s) {
  ///                ring.fill([&] { k.copy(a.tile({row, s * 64}, {128, 64}), a_tile); }); }); }},
  ///            {.name = "add", .warpgroups = 1, .body = [&] {
  ///              k.serial(0, steps, [&](Value) { ring.take([&] { ... }); }); }}});
  void roles(const std::vector<Role>& roles, SourceLoc loc = SourceLoc::here());
  /// A ring of stages between roles. RING_STAGES unless it has 1 to 32 of them, ROLES_PLACE in a role.
  Ring ring(RingOptions options = {}, SourceLoc loc = SourceLoc::here());

  // ---- Programmatic dependent launch (sm_90 and later, where the launch allows it)
  /// Waits for the previous kernel of the stream. What it has written is visible afterwards; do not read
  /// it before.
  void wait_for_previous_kernel(SourceLoc loc = SourceLoc::here());
  /// Lets the next kernel of the stream start. It sees what this kernel writes after its own wait.
  void let_next_kernel_start(SourceLoc loc = SourceLoc::here());

  // ---- Threads of a block and lanes of a warp
  /// A barrier of the block / of the warp. Afterwards its threads see what each other has written.
  /// SYNC_DIVERGENT under a condition that uses the thread index. The compiler inserts the barriers for
  /// shared memory itself, outside of manual_sync.
  void sync(SourceLoc loc = SourceLoc::here());
  void sync_warp(SourceLoc loc = SourceLoc::here());
  /// A barrier of all blocks. Afterwards they see what each other has written. The launch is cooperative:
  /// a grid that does not fit on the device at once fails. Conditions and loops around it must be the
  /// same for all blocks (SYNC_DIVERGENT), and so must any return_if before it (RETURN_BEFORE_BARRIER).
  /// CUDA graphs instantiated from one capture share a counter: do not run them side by side.
  ///
  ///   parts(at.x) = sum;  k.sync_grid();  total = ...parts of all blocks...
  void sync_grid(SourceLoc loc = SourceLoc::here());
  /// A barrier of all blocks of the cluster. Afterwards they see what each other has written.
  void sync_cluster(SourceLoc loc = SourceLoc::here());
  /// In `body` the compiler inserts no barriers for the author's shared buffers. The author writes every
  /// k.sync(), and the executor traps on a missing one (RACE). Shared memory that reductions, scans and
  /// layout changes use is still ordered by the compiler.
  void manual_sync(const std::function<void()>& body);
  /// The value of another lane: of `lane`, of lane xor `mask`, of lane - `delta`, of lane + `delta`, within
  /// groups of `width` lanes. SHUFFLE_WIDTH unless it is a power of two up to 32.
  Value shuffle(Arg value, Arg lane, int width = 32, SourceLoc loc = SourceLoc::here());
  Value shuffle_xor(Arg value, Arg mask, int width = 32, SourceLoc loc = SourceLoc::here());
  Value shuffle_up(Arg value, Arg delta, int width = 32, SourceLoc loc = SourceLoc::here());
  Value shuffle_down(Arg value, Arg delta, int width = 32, SourceLoc loc = SourceLoc::here());
  /// Reduces over the warp; every lane gets the result. i32 and u32 take one instruction, other dtypes
  /// shuffle by xor 16, 8, 4, 2, 1. DTYPE for 8-bit and 4-bit floats, and for sum, max and min of bool.
  Value warp_sum(Arg value, SourceLoc loc = SourceLoc::here());
  Value warp_max(Arg value, SourceLoc loc = SourceLoc::here());
  Value warp_min(Arg value, SourceLoc loc = SourceLoc::here());
  Value warp_and(Arg value, SourceLoc loc = SourceLoc::here());  // of the bits of an integer
  Value warp_or(Arg value, SourceLoc loc = SourceLoc::here());
  /// Votes of the warp: whether the condition holds in any lane, in all lanes, in which lanes.
  Value warp_any(Arg condition, SourceLoc loc = SourceLoc::here());
  Value warp_all(Arg condition, SourceLoc loc = SourceLoc::here());
  Value ballot(Arg condition, SourceLoc loc = SourceLoc::here());  // u32, a bit per lane
  /// The lanes that hold the same value.
  Value match_any(Arg value, SourceLoc loc = SourceLoc::here());  // u32, a bit per lane

  /// Returns the kernel and ends the recording. NO_EFFECT if the kernel has no statements, or has outputs
  /// and neither writes one, calls an external function, prints nor asserts.
  ir::Kernel finish(SourceLoc loc = SourceLoc::here());

 private:
  friend class Ring;
  void loop(ir::LoopKind kind, Arg begin, Arg end, Arg step,
            const std::function<void(const Value&)>& body, SourceLoc loc,
            PipelineOptions pipeline = {}, bool rolled = false);
  /// A loop that goes down, or whose step comes at run time.
  void counted_loop(const Value& begin, const Value& end, const Value& step,
                    const std::function<void(const Value&)>& body, SourceLoc loc, bool rolled);
  /// Records the body of a loop that break_if may leave into node.body; `body` is given the index node.vars[0].
  void breakable_body(ir::Loop& node, bool runs_always, const std::function<void()>& body,
                      SourceLoc loc);
  void endless_loop(const std::function<void(const Value&)>& body, SourceLoc loc);
  void parallel_loop(std::vector<int64_t> extents,
                     const std::function<void(const std::vector<Value>&)>& body, SourceLoc loc,
                     std::string label = {}, std::optional<ir::CopyPlan> plan = {});
  void copy(const Ref& from, const Ref& to, ir::Copy terms, SourceLoc loc);
  void copy_rows(const Rows& rows, const Ref& tile, bool gathers, ir::CopyTime when, SourceLoc loc);
  AsyncToken committed(SourceLoc loc);
  Ref tensor(std::string name, DType dtype, std::vector<Arg> shape, TensorOptions options,
             bool is_output, SourceLoc loc);
  void persistent_loop(std::vector<Arg> tiles,
                       const std::function<void(const std::vector<Value>&)>& body,
                       PersistentOptions options, SourceLoc loc);
  void reduce(ir::ReduceOp op, const Ref& from, const Ref& to, Axis axis, SourceLoc loc);
  Tile reduce(ir::ReduceOp op, const Tile& from, Axis axis, SourceLoc loc);
  /// The buffer of a tile; computes an expression.
  Ref operand(const Tile& tile, SourceLoc loc);
  void for_elements(const Tile& tile, const Ref& to,
                    const std::function<void(const Ref&, const Value&)>& body, SourceLoc loc);
  void scan(ir::Op op, const Ref& from, const Ref& to, Axis axis, ScanOptions options,
            SourceLoc loc);
  TileBest best(ir::ReduceOp op, const Tile& from, Axis axis, SourceLoc loc);
  Value atomic(ir::AtomicOp op, const Ref& element, const Arg& value, const Arg* expected,
               bool fetch, MemoryOrder order, SourceLoc loc);
  void signal(ir::AtomicOp op, const Ref& cell, const Arg& value, SourceLoc loc);
  Value wait_for_signal(const Ref& cell, const std::function<Value(const Value&)>& holds,
                        SourceLoc loc);
  Value warp_reduce(ir::CollectiveKind kind, ir::Op op, Arg value, SourceLoc loc);

  std::unique_ptr<Recorder> recorder_;
};

template <IterationBody Fn>
void Builder::parallel(std::vector<int64_t> extents, const Fn& body, SourceLoc loc) {
  constexpr int arity = std::is_invocable_v<Fn, Value>                 ? 1
                        : std::is_invocable_v<Fn, Value, Value>        ? 2
                        : std::is_invocable_v<Fn, Value, Value, Value> ? 3
                                                                       : 4;
  require_arity(*recorder_, extents.size(), arity, loc);
  parallel_loop(
      std::move(extents),
      [&](const std::vector<Value>& i) {
        if constexpr (arity == 1) {
          body(i[0]);
        } else if constexpr (arity == 2) {
          body(i[0], i[1]);
        } else if constexpr (arity == 3) {
          body(i[0], i[1], i[2]);
        } else {
          body(i[0], i[1], i[2], i[3]);
        }
      },
      loc);
}

template <TileBody Fn>
void Builder::persistent(std::vector<Arg> tiles, const Fn& body, PersistentOptions options,
                         SourceLoc loc) {
  constexpr int arity = std::is_invocable_v<Fn, Value> ? 1 : 2;
  require_arity(*recorder_, tiles.size(), arity, loc);
  persistent_loop(
      std::move(tiles),
      [&](const std::vector<Value>& tile) {
        if constexpr (arity == 1) {
          body(tile[0]);
        } else {
          body(tile[0], tile[1]);
        }
      },
      options, loc);
}

}  // namespace tessera::dsl
