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
#include "dsl/value.h"

namespace tessera::dsl {

using ir::CacheHint;
using ir::ExternFunction;
using ir::MemoryOrder;
using ir::ReduceOp;

/// What is known of a dim or a stride.
struct DimOptions {
  int64_t multiple_of = 1;  // declared by the author, checked by the host on every call
};

/// How a tensor lies in memory, and whether it may be absent or alias another.
struct TensorOptions {
  std::vector<Arg> strides = {};  // in elements, one per dimension; empty = row-major
  /// Bytes, declared alignment of the base pointer, checked by the host. 0 = 16, or the size of the
  /// element for a tensor of one element.
  int64_t align = 0;
  bool optional = false;  // may be null: used under Builder::if_present only
  /// May share memory with the other tensors of which this is said: their reads and writes stay in
  /// the order of the program, where it costs something too. Of other tensors a call whose outputs
  /// overlap anything is refused.
  bool may_alias = false;
};

/// The shape of a block and of a cluster.
struct LaunchOptions {
  int threads = 128;          // of a block
  int min_blocks_per_sm = 0;  // 0 = not stated; at most what an SM of the target holds is asked for
  /// Blocks that run together and reach each other's shared memory: runs of neighbours along the
  /// first axis of the grid, whose extent is a multiple. 1 to 16 (devices promise 8), from sm_90 on.
  int cluster = 1;
};

/// What a copy reads outside of a tensor.
struct CopyOptions {
  Arg outside = 0;  // a constant of the target's dtype: what is read outside of a global tensor
};

/// An asynchronous copy under way; see Builder::copy_async.
class AsyncToken {
 private:
  friend class Builder;
  AsyncToken(int group, int scope) : group_(group), scope_(scope) {}
  int group_, scope_;
};

/// How the warps of a block share a product.
struct GemmOptions {
  /// Warps along the rows and columns of the product; 0 = the compiler chooses the grid that reads
  /// the operands least often. The product of all three is the number of warps of the block.
  int warp_rows = 0;
  int warp_columns = 0;
  /// Parts of k that warps of their own multiply; with more than 1 the product is [warp_depths, m, n],
  /// the partial products, which the author adds.
  int warp_depths = 1;
  ir::Tf32 tf32 = ir::Tf32::round;  // of f32 operands
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
};

enum class Axis : int {};  // k.reduce_sum(tile, sums, Axis(1))

/// How a pipelined loop copies ahead.
struct PipelineOptions {
  int stages = 1;  // iterations
  /// The copies of iteration i + stages go where those of iteration i were, as soon as all of its
  /// readers are through; else to a version of its own, when iteration i begins.
  bool in_place = false;
};

/// The order in which a persistent loop walks its tiles.
struct PersistentOptions {
  int64_t group =
      1;  // this many neighbours along the last axis are walked before the other axis moves
};

/// What a loop of one index runs: [&](Value i) { ... }.
template <class Fn>
concept LoopBody = std::invocable<const Fn&, Value>;

/// What a loop over two axes at most runs: one Value for each.
template <class Fn>
concept TileBody = std::invocable<const Fn&, Value> || std::invocable<const Fn&, Value, Value>;

/// What a loop over several extents runs: one Value for each.
template <class Fn>
concept IterationBody = TileBody<Fn> || std::invocable<const Fn&, Value, Value, Value> ||
    std::invocable<const Fn&, Value, Value, Value, Value>;

/// Throws if a loop body takes another number of indices than the loop has extents.
TESSERA_API void require_arity(const Recorder& recorder, size_t extents, int arity, SourceLoc loc);

/// Limits, so that no pass runs out of stack: 256 operations in a row, each on the result of another
/// (EXPRESSION_DEPTH; `let` begins anew), 65536 operations in one value (EXPRESSION_SIZE), 64 loops
/// and branches inside each other (NESTING).
class TESSERA_API Builder {
 public:
  explicit Builder(std::string name);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // ---- signature
  /// A dynamic extent (i32, at least 1 inside the kernel, below 2^31 - 2^24). NAME if another dim,
  /// stride or scalar is called so, SHAPE for a multiple below 1; the same below.
  Value dim(std::string name, DimOptions options = {}, SourceLoc loc = SourceLoc::here());
  /// A dynamic stride in elements (i64, not negative).
  Value stride(std::string name, DimOptions options = {}, SourceLoc loc = SourceLoc::here());
  /// A scalar parameter.
  Value scalar(std::string name, DType dtype, SourceLoc loc = SourceLoc::here());
  /// A global tensor that the kernel reads / writes / both. Between threads the compiler orders shared
  /// memory alone: what other threads of the block have written to an output is there behind a
  /// k.sync(), and only behind one may they overwrite what was read; threads of other blocks need
  /// k.sync_grid() or acq_rel atomics. The checked executor traps where nothing stands between (RACE),
  /// and where several blocks write one element.
  Ref input(std::string name, DType dtype, std::vector<Arg> shape, TensorOptions options = {},
            SourceLoc loc = SourceLoc::here());
  Ref output(std::string name, DType dtype, std::vector<Arg> shape, TensorOptions options = {},
             SourceLoc loc = SourceLoc::here());
  /// Runs `then` where the optional tensor was given, `otherwise` where it was not. Accesses to an
  /// optional tensor anywhere else are refused (OPTIONAL). Of a tensor that is not optional only
  /// `then` is recorded.
  void if_present(const Ref& tensor, const std::function<void()>& then,
                  const std::function<void()>& otherwise = nullptr,
                  SourceLoc loc = SourceLoc::here());
  /// The tensor that begins at `address` (u64 or i64, not null), a value that was read from a table
  /// for example. Accesses are as wide as `align` allows; nothing checks the extents but the bounds
  /// guards. The address has to be that of the device which runs the kernel.
  ///
  ///   auto row = k.tensor_at(table(layer), DType::bf16, {tokens, 7168}, {.align = 16});
  Ref tensor_at(Arg address, DType dtype, std::vector<Arg> shape, PointerOptions options = {},
                std::string name = "pointee", SourceLoc loc = SourceLoc::here());
  /// Exactly once, before any statement. One to three grid extents. CLUSTER for a cluster that is
  /// impossible; a target below sm_90 and a grid that is no multiple are errors of the launch.
  BlockIndex launch(std::vector<Arg> grid, LaunchOptions options = {},
                    SourceLoc loc = SourceLoc::here());
  Value thread() const;  // index in the block
  Value lane() const;    // thread % 32
  Value warp() const;    // thread / 32
  /// Index of the block in its cluster.
  Value cluster_rank() const;

  // ---- memory
  /// A buffer of the block, which all its threads see. SMEM_LIMIT if the block needs more than 227 KiB.
  Ref shared(DType dtype, std::vector<int64_t> shape, std::string name = "tile",
             SourceLoc loc = SourceLoc::here());
  /// A block-level tile in registers; the compiler decides which thread holds what. REGISTERS if it
  /// cannot fit into the 255 registers of each thread.
  Ref fragment(DType dtype, std::vector<int64_t> shape, std::string name = "frag",
               SourceLoc loc = SourceLoc::here());
  /// A fragment with the author's layout (shapes must agree).
  Ref fragment(DType dtype, const layout::Layout& layout, std::string name = "frag",
               SourceLoc loc = SourceLoc::here());
  /// A private array of every thread. Indices must be constant once loops are unrolled.
  Ref local(DType dtype, std::vector<int64_t> shape, std::string name = "local",
            SourceLoc loc = SourceLoc::here());
  /// One mutable value per thread.
  Ref var(DType dtype, Arg init, std::string name = "value", SourceLoc loc = SourceLoc::here());
  /// The shared buffer that stands in the place of `mine` in block `rank` (i32) of the cluster: its
  /// elements can be read, written, copied and changed atomically. Between accesses of two blocks to
  /// an element stands a k.sync_cluster() that the author writes, as before the first access of all;
  /// the checked executor traps where it is missing. A block stays until no other needs its memory:
  /// the compiler sees to that. CLUSTER if `mine` is not shared or the launch has no cluster.
  ///
  ///   k.parallel({experts}, [&](Value e) { counts(e) = ...; });
  ///   k.sync_cluster();
  ///   k.unrolled(8, [&](Value rank) { sum += k.of_block(counts, rank)(k.thread()); });
  Ref of_block(const Ref& mine, Arg rank, SourceLoc loc = SourceLoc::here());
  /// Names a value, so that the generated code computes it once.
  Value let(std::string name, Arg value, SourceLoc loc = SourceLoc::here());

  // ---- tile operations, by all threads of the block: SYNC_DIVERGENT under a condition that uses the
  // thread index
  /// Equal extents after dropping single indices; dtypes convert on the way. Reads outside a global
  /// tensor give 0, writes outside are dropped. COPY_OVERLAP for two places of one shared buffer that
  /// overlap for sure.
  void copy(const Ref& from, const Ref& to, SourceLoc loc = SourceLoc::here());
  /// The same with another value for what is outside. COPY_OUTSIDE if `from` is not global, which
  /// has no outside, or the value is not a constant.
  ///   k.copy(scores.tile({row, 0}, {8, 64}), tile, {.outside = -1.0f});
  void copy(const Ref& from, const Ref& to, CopyOptions options, SourceLoc loc = SourceLoc::here());
  void fill(const Ref& to, Arg value, SourceLoc loc = SourceLoc::here());
  /// Starts a copy from global to shared memory and goes on; the data must not be touched before a
  /// wait. Equal shapes and dtypes; outside the tensor it gives 0. CPASYNC_WIDTH if the parts are not
  /// aligned runs of 4, 8 or 16 bytes.
  ///   auto copied = k.copy_async(x.tile({row, 0}, {8, 64}), tile);
  ///   ...                  // work that does not need the tile
  ///   k.wait(copied);      // the tile is there, for every thread of the block
  AsyncToken copy_async(const Ref& from, const Ref& to, SourceLoc loc = SourceLoc::here());
  /// Waits for the copy of `token` and all before it.
  void wait(const AsyncToken& token, SourceLoc loc = SourceLoc::here());
  /// Waits until at most `pending` of the copies started last are under way.
  void wait_pending(int pending, SourceLoc loc = SourceLoc::here());
  /// to = reduction of the fragment `from` over one axis, in the dtype of `to`: that of `from`, or
  /// f32 for any float. NaN is dropped by max, min and absmax. Parts and transposed views of fragments
  /// are copied into fragments of their own shape, through shared memory where threads differ.
  void reduce_sum(const Ref& from, const Ref& to, Axis axis, SourceLoc loc = SourceLoc::here());
  void reduce_max(const Ref& from, const Ref& to, Axis axis, SourceLoc loc = SourceLoc::here());
  void reduce_min(const Ref& from, const Ref& to, Axis axis, SourceLoc loc = SourceLoc::here());
  void reduce_absmax(const Ref& from, const Ref& to, Axis axis, SourceLoc loc = SourceLoc::here());

  /// to[.., i, ..] = sum (or maximum) of from[.., 0 .. i, ..] along one axis. Each side is a whole
  /// shared buffer or fragment of one dtype (i32, u32, i64, u64 or f32) and 1 or 2 dimensions; both
  /// may be the same buffer. Needs whole warps. f32 sums are taken in an order that depends on the
  /// shape and, for a single line, on the block size.
  ///
  ///   k.scan_sum(counts, first, Axis(0));   // first[i] = counts[0] + .. + counts[i]
  void scan_sum(const Ref& from, const Ref& to, Axis axis, SourceLoc loc = SourceLoc::here());
  void scan_max(const Ref& from, const Ref& to, Axis axis, SourceLoc loc = SourceLoc::here());

  /// A deferred accumulator of the whole block, see dsl/reducer.h. Ops sum, max, min on f32, i32
  /// and i64.
  Reducer reducer(ReduceOp op, DType dtype, std::vector<int64_t> shape = {1},
                  ReducerOptions options = {}, std::string name = "reducer",
                  SourceLoc loc = SourceLoc::here());

  // ---- atomics: one element of a shared buffer or of an output tensor, in one indivisible step
  /// element = element + value: i32, u32, i64, u64, f32, f16 or bf16. Outside of a global tensor
  /// nothing happens. Float sums depend on the order in which threads come; f32 sums in global
  /// memory flush subnormals to zero, as the instruction does.
  void atomic_add(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                  SourceLoc loc = SourceLoc::here());
  /// i32, u32, i64, u64 or f32; NaN is dropped.
  void atomic_max(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                  SourceLoc loc = SourceLoc::here());
  void atomic_min(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                  SourceLoc loc = SourceLoc::here());
  /// The same, giving the value that was there before (0 outside of a global tensor). Once
  /// per iteration in a parallel loop, also where the loop has fewer iterations than threads.
  Value atomic_fetch_add(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                         SourceLoc loc = SourceLoc::here());
  Value atomic_fetch_max(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                         SourceLoc loc = SourceLoc::here());
  Value atomic_fetch_min(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                         SourceLoc loc = SourceLoc::here());
  /// i32, u32, i64, u64 or f32 (compared as bits).
  Value atomic_exchange(const Ref& element, Arg value, MemoryOrder order = MemoryOrder::relaxed,
                        SourceLoc loc = SourceLoc::here());
  /// Writes `value` if the element is `expected`; gives what was found.
  Value atomic_compare_exchange(const Ref& element, Arg expected, Arg value,
                                MemoryOrder order = MemoryOrder::relaxed,
                                SourceLoc loc = SourceLoc::here());

  /// c += a * b by the tensor cores. a [m, k] and b [k, n] are shared or whole fragments, c [m, n] is
  /// a fragment; a transposed shared operand is a transposed view: k.gemm(x, w.transposed(), sum). An
  /// operand that every iteration of a loop multiplies is best kept in a fragment.
  ///
  ///   a, b                 c      m, n, k are multiples of
  ///   f32 (as tf32)        f32    16 x warp_rows, 8 x warp_columns, 8 x warp_depths
  ///   bf16, f16            f32    16 x warp_rows, 8 x warp_columns, 16 x warp_depths
  ///   e4m3, e5m2 (mixed)   f32    16 x warp_rows, 8 x warp_columns, 32 x warp_depths
  ///   i8                   i32    16 x warp_rows, 8 x warp_columns, 32 x warp_depths
  ///
  /// k is consumed in ascending steps of its multiple for one depth. Integers wrap. The order
  /// inside one step is the hardware's and not specified: the executor adds c and the exact
  /// products in f64 in ascending k and rounds once to f32, the GPU may differ in the last bits
  /// (and below sm_89 takes 8-bit floats in two steps of 16, widened to f16).
  ///
  /// Errors: GEMM, SHAPE, DTYPE. Example: tests/codegen/language/gemm_test.cpp.
  void gemm(const Ref& a, const Ref& b, const Ref& c, GemmOptions options = {},
            SourceLoc loc = SourceLoc::here());

  // ---- control flow
  /// Unordered iterations spread over the threads of the block. `body` takes one Value per extent
  /// (1 to 4). ITERATION_ORDER where one reads from shared memory what another writes.
  template <IterationBody Fn>
  void parallel(std::vector<int64_t> extents, const Fn& body, SourceLoc loc = SourceLoc::here());
  /// for (i = begin; i < end; i += step), in every thread.
  template <LoopBody Fn>
  void serial(Arg begin, Arg end, const Fn& body, Arg step = 1, SourceLoc loc = SourceLoc::here()) {
    loop(ir::LoopKind::serial, begin, end, step, body, loc);
  }
  /// A walk over a domain of 1 or 2 axes, last axis fastest, by all blocks of a 1-D grid together:
  /// block b runs tiles b, b + grid, b + 2 grid, ... in order. `body` takes one Value per axis.
  ///
  ///   k.persistent({ceil_div(rows, 64), 4}, [&](Value row_tile, Value column_tile) { ... });
  template <TileBody Fn>
  void persistent(std::vector<Arg> tiles, const Fn& body, PersistentOptions options = {},
                  SourceLoc loc = SourceLoc::here());
  /// for (i = begin; i < end; ++i) with the result of a serial loop, but the copies from global to
  /// shared memory are issued `stages` iterations ahead. Their shared tiles take stages + 1 times
  /// their size, in place `stages` times. A copy whose tile is used outside the loop, or read before
  /// it is copied, or whose place depends on what the iteration computes, stays where it is (`explain`
  /// says so). The copies of the first iteration are issued before statements in front of the loop that
  /// only fill registers, those of the next ones behind what these statements load.
  ///   k.pipelined(0, ceil_div(depth, 64), 2, [&](Value i) {
  ///     k.copy(x.tile({row, i * 64}, {16, 64}), tile);
  ///     k.parallel({16, 64}, [&](Value r, Value c) { sum(r, c) += tile(r, c); });
  ///   });
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
  template <LoopBody Fn>
  void unrolled(int64_t extent, const Fn& body, SourceLoc loc = SourceLoc::here()) {
    loop(ir::LoopKind::unrolled, 0, extent, 1, body, loc);
  }
  /// A contract: every global and shared access of the body is one vector of `extent` elements, or
  /// an error says why not.
  template <LoopBody Fn>
  void vectorized(int64_t extent, const Fn& body, SourceLoc loc = SourceLoc::here()) {
    loop(ir::LoopKind::vectorized, 0, extent, 1, body, loc);
  }
  void if_(Arg condition, const std::function<void()>& then, SourceLoc loc = SourceLoc::here());
  void if_else(Arg condition, const std::function<void()>& then,
               const std::function<void()>& otherwise, SourceLoc loc = SourceLoc::here());
  /// Threads that meet the condition leave the kernel. RETURN_BEFORE_BARRIER if the rest of the
  /// block would meet a barrier without them, RETURN_IN_PARALLEL in a parallel loop.
  void return_if(Arg condition, SourceLoc loc = SourceLoc::here());
  /// States a fact for the prover, for the rest of the body it stands in. The author vouches for it:
  /// guards that it makes unnecessary are left out. Only the executor with traps on checks it.
  void assume(Arg condition, SourceLoc loc = SourceLoc::here());

  /// Stops the kernel with the message and the author's line where the condition does not hold, on
  /// the GPU (the launch then fails at the next synchronisation) and on the executor (trap ASSERT).
  void device_assert(Arg condition, std::string message, SourceLoc loc = SourceLoc::here());
  /// Notes where the condition does not hold, and goes on: for values that the caller promised, where
  /// the kernel then does the safe thing. jit::take_value_errors tells the message.
  ///   k.report_unless(expert < experts, "argument 'ids' has a value out of range");
  void report_unless(Arg condition, std::string message, SourceLoc loc = SourceLoc::here());
  /// One line per thread that comes here, on standard output; each {} stands for the next value.
  ///   k.if_(k.thread() == 0, [&] { k.print("row {}: {}", {row, sum}); });
  void print(std::string text, std::vector<Arg> values = {}, SourceLoc loc = SourceLoc::here());
  /// Calls a CUDA device function.
  ///   static const ExternFunction half_down{.name = "__float2half_rz", ...};
  Value call(const ir::ExternFunction& function, std::vector<Arg> args,
             SourceLoc loc = SourceLoc::here());

  // ---- overlap with the neighbours in the stream (sm_90 and later, where the launch allows it)
  /// What the kernel before has written is visible after this. What is read earlier must not come
  /// from it.
  void wait_for_previous_kernel(SourceLoc loc = SourceLoc::here());
  /// The next kernel may start now; what this one writes is visible to it after its own wait.
  void let_next_kernel_start(SourceLoc loc = SourceLoc::here());

  // ---- threads of a block and lanes of a warp
  /// A barrier of all threads of the block / of the warp: what they have written is visible to each
  /// other. SYNC_DIVERGENT under a condition that uses the thread index. Where k.copy, fragments and
  /// parallel loops share memory the compiler puts the barriers itself.
  void sync(SourceLoc loc = SourceLoc::here());
  void sync_warp(SourceLoc loc = SourceLoc::here());
  /// All threads of all blocks meet; what they have written is visible to each other. The kernel is
  /// launched cooperatively: a grid that does not fit on the device at once is an error of the
  /// launch. Stands under conditions and in loops that are the same for all blocks
  /// (SYNC_DIVERGENT), after no return_if that is not (RETURN_BEFORE_BARRIER). Graphs that were
  /// instantiated from one capture may not run side by side: their launches meet at one counter.
  ///
  ///   parts(at.x) = sum;  k.sync_grid();  total = ...parts of all blocks...
  void sync_grid(SourceLoc loc = SourceLoc::here());
  /// All threads of all blocks of the cluster meet; what they have written is visible to each other.
  void sync_cluster(SourceLoc loc = SourceLoc::here());
  /// In `body` the compiler puts no barriers for the author's shared memory: his syncs are the only
  /// ones, and the checked executor traps on what they miss. What reductions, scans and fragments that
  /// change their layout keep in shared memory is ordered as everywhere.
  void manual_sync(const std::function<void()>& body);
  Value shuffle(Arg value, Arg lane, int width = 32, SourceLoc loc = SourceLoc::here());
  Value shuffle_xor(Arg value, Arg mask, int width = 32, SourceLoc loc = SourceLoc::here());
  Value shuffle_up(Arg value, Arg delta, int width = 32, SourceLoc loc = SourceLoc::here());
  Value shuffle_down(Arg value, Arg delta, int width = 32, SourceLoc loc = SourceLoc::here());
  /// Over the warp, same result in every lane. i32 and u32 take one instruction, other dtypes go by
  /// xor 16, 8, 4, 2, 1.
  Value warp_sum(Arg value, SourceLoc loc = SourceLoc::here());
  Value warp_max(Arg value, SourceLoc loc = SourceLoc::here());
  Value warp_min(Arg value, SourceLoc loc = SourceLoc::here());
  Value warp_and(Arg value, SourceLoc loc = SourceLoc::here());  // of the bits of an integer
  Value warp_or(Arg value, SourceLoc loc = SourceLoc::here());
  Value warp_any(Arg condition, SourceLoc loc = SourceLoc::here());
  Value warp_all(Arg condition, SourceLoc loc = SourceLoc::here());
  Value ballot(Arg condition, SourceLoc loc = SourceLoc::here());  // u32, bit = lane
  Value match_any(Arg value, SourceLoc loc = SourceLoc::here());   // u32 mask of equal lanes

  /// The finished kernel. The builder is spent afterwards. NO_EFFECT for a kernel without statements,
  /// or one with outputs that writes none, calls no function of its author, and neither prints nor
  /// asserts.
  ir::Kernel finish(SourceLoc loc = SourceLoc::here());

 private:
  void loop(ir::LoopKind kind, Arg begin, Arg end, Arg step,
            const std::function<void(const Value&)>& body, SourceLoc loc,
            PipelineOptions pipeline = {.stages = 0});
  void parallel_loop(std::vector<int64_t> extents,
                     const std::function<void(const std::vector<Value>&)>& body, SourceLoc loc);
  void copy(const Ref& from, const Ref& to, ir::CopyMode mode, ir::Expr outside, SourceLoc loc);
  Ref tensor(std::string name, DType dtype, std::vector<Arg> shape, TensorOptions options,
             bool is_output, SourceLoc loc);
  void persistent_loop(std::vector<Arg> tiles,
                       const std::function<void(const std::vector<Value>&)>& body,
                       PersistentOptions options, SourceLoc loc);
  void reduce(ir::ReduceOp op, const Ref& from, const Ref& to, Axis axis, SourceLoc loc);
  void scan(ir::Op op, const Ref& from, const Ref& to, Axis axis, SourceLoc loc);
  Value atomic(ir::AtomicOp op, const Ref& element, const Arg& value, const Arg* expected,
               bool fetch, MemoryOrder order, SourceLoc loc);
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
