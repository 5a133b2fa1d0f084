#pragma once
// Runs bytecode: one Machine per block of a cluster and worker thread, one block at a time. The
// threads of the block run in lockstep; inside roles those of each role do, and the roles take
// turns, each as far as it can go. Pure arithmetic runs for every thread between the first and the
// last active one; only memory accesses test the mask.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codegen/cpu/arithmetic/product_sums.h"
#include "codegen/cpu/compiler/bytecode.h"
#include "codegen/cpu/executor.h"
#include "codegen/cpu/machine/box.h"
#include "codegen/cpu/machine/cursor.h"
#include "codegen/cpu/machine/in_flight.h"
#include "codegen/cpu/machine/launch.h"
#include "codegen/cpu/machine/mbarrier.h"
#include "codegen/cpu/machine/neighbours.h"
#include "codegen/cpu/machine/warp_steps.h"
#include "codegen/cpu/races/shadow.h"
#include "codegen/cpu/races/warp_clocks.h"

namespace tessera::codegen::cpu {

class Machine {
 public:
  /// `neighbours` receives this machine after all have been made.
  Machine(const Program& program, const Bytecode& bytecode, const Launch& launch,
          Neighbours& neighbours, int rank);

  /// Extents of the grid; 1 where the program has none.
  std::array<int64_t, 3> grid() const;
  /// Goes to the start of a block; `number` counts blocks with x fastest.
  void start_block(const std::array<int64_t, 3>& block, int64_t number);
  /// Runs the block as far as possible: to its end, to its next cluster barrier, or until all its
  /// threads wait for others. True if any thread made progress. Throws Error of kind trap.
  bool resume();
  bool has_ended() const { return has_ended_; }
  bool is_at_barrier() const { return is_at_barrier_; }
  /// True if the block stands at a barrier of the grid, not of the cluster.
  bool is_at_grid_barrier() const { return is_at_grid_barrier_; }
  /// Where the block, or its roles, wait for signals of other blocks.
  std::vector<SignalWait> signal_waits() const;
  /// "block (2, 0, 0) waits for flags[1] (kernel.cpp:12)", or "'load' of block ..." of a role.
  std::string awaited_signal(const Cursor& cursor) const;
  /// Traps at a wait for a signal, with the states of all; `related`: the statement of another, or 0.
  [[noreturn]] void trap_no_signal(const Cursor& cursor, const std::string& states,
                                   int32_t related) const;
  /// Traps at the block's cluster barrier if the other blocks never arrive.
  [[noreturn]] void trap_alone(const Machine& other) const;
  /// Traps at the block's position if no thread of the cluster can make progress.
  [[noreturn]] void trap_deadlock();
  /// All blocks of the cluster or grid have arrived, the last one at that step. Forgets who accessed this block's memory.
  void pass_cluster_barrier(int64_t step);
  int64_t last_step() const { return steps_.last(mask()); }
  const Counts& counts() const { return counts_; }
  /// By statement and transfer.
  using Accesses = std::map<std::pair<int32_t, const Transfer*>, Counts>;
  const Accesses& accesses() const { return accesses_; }

 private:
  // ---- control (machine.cpp)
  enum class Stop : uint8_t {
    end,
    roles,    // begin
    barrier,  // at one of the cluster or grid
    waiting,  // the next instruction has to be tried again
  };
  /// Runs the cursor. `code` is the list that its instructions index.
  Stop execute(const std::vector<Instr>& code);
  /// Runs an instruction that neither jumps nor stops.
  void perform(const Instr& instr);
  void compute(const Instr& instr);
  void copy(const Instr& instr);
  void broadcast(const Instr& instr);
  void declare(const Storage& storage);
  void lanewise(const Instr& instr);
  void barrier(const Instr& instr);
  void cluster_barrier(const Instr& instr);
  void check_whole_block(const Instr& instr, const char* what) const;
  void warp_barrier(const Instr& instr);
  void collective(const Instr& instr);  // collectives.cpp

  // ---- roles (roles.cpp)
  void make_cursors(uint8_t* lanes, int64_t mask_bytes);
  /// Runs one cursor; true if it made progress.
  bool run(Cursor& cursor);
  bool run_roles();
  void begin_roles();
  void end_roles();
  /// Chooses the next order of the roles.
  void shuffle_roles();
  /// False if the barrier still waits for other threads.
  bool named_barrier(const Instr& instr);
  void arrive(const Instr& instr, const Barrier& barrier);
  void check_arrival(const Instr& instr, const Barrier& barrier) const;
  /// "'load' (kernel.cpp:12) waits at named barrier 1, where 32 of 64 threads have come"
  std::string state_of(const Cursor& cursor) const;
  const Instr& next_of(const Cursor& cursor) const { return code_.block[cursor.next]; }

  // ---- who executes (masks.cpp)
  const Mask& mask() const { return cursor_->mask(); }
  int active_warps() const;
  void push_mask(Slot condition);
  void flip_mask(Slot condition);
  void narrow_mask(Slot condition);
  void guard(const Instr& instr);
  void leave(const Instr& instr);

  // ---- memory (memory.cpp)
  void transfer(const Instr& instr);
  /// The memory behind a global or shared array; traps where it is null.
  std::byte* memory_of(const Instr& instr, const Transfer& transfer) const;
  void transfer_registers(const Instr& instr, const Transfer& transfer);
  void copy_column(std::byte* to, const std::byte* from, int bytes) const;
  /// First of the columns that a transfer reads or writes, and the bytes between them.
  struct Columns {
    std::byte* data;
    int64_t stride;
  };
  Columns columns(const Instr& instr, const Transfer& transfer) const;
  Columns columns(const Instr& instr, const SlotRange& range, int width) const;
  /// Column `element` of a register array; traps outside the array.
  std::byte* register_column(const Instr& instr, const Storage& storage, int64_t element) const;
  uint8_t* initialised_column(const Storage& storage, int64_t element) const;
  void mark_initialised(const Storage& storage, int64_t element);

  // ---- atomics.cpp
  void atomic(const Instr& instr);
  /// True if the condition of a wait for a signal holds; `again`: the block has only looked again.
  bool await_signal(const Instr& instr, bool again);
  void order_cluster(int lane, const std::byte* place, bool acquires, bool releases);
  void add_element(const AtomicStep& step, std::byte* element, const std::byte* value, int bytes);
  template <class T>
  void atomic_lanes(const Instr& instr, const Transfer& transfer, std::byte* base);

  // ---- asynchronous copies (async.cpp)
  void async_read(const Instr& instr);
  void async_copy(const Instr& instr);
  /// The bytes are there, written by this thread.
  void land(const Landing& landing, int lane);
  void land_in_ring(int lane);
  void async_commit();
  void async_wait(const Instr& instr);
  void drop_copies();

  // ---- mbarriers (mbarrier.cpp) and copies that complete on them (bulk_copy.cpp)
  void mbarrier_init(const Instr& instr);
  void mbarrier_arrive(const Instr& instr);
  /// False if a thread must wait until another makes progress.
  bool mbarrier_wait(const Instr& instr);
  void bulk_copy(const Instr& instr);
  // tensor_copy.cpp
  void tensor_copy(const Instr& instr);
  void start_box(const Instr& instr, const BoxMove& move, int lane, Machine& owner,
                 const std::vector<std::byte>& box);
  void check_part(const Instr& instr, const BoxMove& move, int lane,
                  const Mbarrier& mbarrier) const;
  void check_box(const Instr& instr, const BoxMove& move, int lane) const;
  std::vector<std::byte> read_box(const Instr& instr, const BoxMove& move, int lane);
  BoxPlace place_of(const BoxMove& move, int lane) const;
  // written_maps.cpp
  void write_map(const Instr& instr);
  const std::byte* place_of_map(const Transfer& at, int lane) const;
  void check_map(const Instr& instr, const BoxMove& move, int lane) const;
  // tensor_store.cpp
  void tensor_store(const Instr& instr);
  void commit_stores();
  void await_stores(const Instr& instr);
  void check_source(const BoxStore& store, const StoreInFlight& started);
  void check_target(const BoxStore& store, const StoreInFlight& started) const;
  void count_store(const BoxStore& store, const StoreInFlight& started);
  void read_source(StoreInFlight& started);
  void land(const StoreInFlight& started);
  void note_stored(const StoreInFlight& started, int64_t element, int64_t elements) const;
  void check_stored(const StoreInFlight& started, int64_t element, const std::byte* to,
                    const std::byte* value);
  void end_stores();
  /// Traps if an access writes a byte of shared memory that a tensor store in flight reads.
  void check_not_stored(const Instr& instr, const Transfer& transfer, int lane, int64_t byte) const;
  /// Traps if an access meets elements that a tensor store in flight writes.
  void check_in_memory(const Instr& instr, const Transfer& transfer) const;
  void proxy_fence();
  /// Records a store to this block's memory by a thread of the cluster.
  void note_store(int64_t byte, int thread, int32_t statement);
  /// The last store to a byte, if neither its thread has passed a proxy fence since, nor the thread `lane`
  /// one after an order between the two; else null.
  const GenericStore* unfenced(const Machine& owner, int64_t byte, int lane) const;
  void check_overwritten(const Instr& instr, const Transfer& to, int lane,
                         const Machine& owner) const;
  /// The mbarrier that a thread names, in the memory of `owner`.
  Mbarrier& mbarrier_of(const Instr& instr, int lane, Machine& owner) const;
  int64_t mbarrier_byte(const Transfer& at, int lane) const;
  void land(const Mbarrier::Copy& copy, Mbarrier& mbarrier);
  void mark_in_flight(const Mbarrier::Copy& copy, int32_t statement);
  void drop_mbarriers();
  void check_mbarrier(const Instr& instr);
  void check_bytes(const Instr& instr, int lane, const Mbarrier& mbarrier,
                   const std::string& name) const;
  void check_mbarriers_at_end() const;
  void check_ring_at_end(int64_t byte, const Mbarrier& mbarrier) const;
  [[noreturn]] void trap_init(const Instr& instr, int lane, const char* what,
                              int32_t related) const;
  [[noreturn]] void trap_phase(const Instr& instr, int lane, int64_t phase,
                               const Mbarrier& mbarrier) const;
  void trap_endless_phase(const Instr& instr);
  /// The phase that the first waiting thread of these waits for.
  std::string awaited_phase(const Instr& instr, const Mask& waiting) const;

  // ---- matrices (matrix.cpp)
  /// Performs a LoadMatrix after its rows are checked.
  void load_matrices(const Transfer& transfer, const std::byte* base);
  std::byte* product_columns(const Instr& instr, const SlotRange& range, int count);
  void multiply(const Instr& instr);
  template <class Sums>
  void multiply(const Instr& instr, const Product& product, Sums& sums);
  /// The thread that receives `byte` of the row that `lane` names.
  static int receiver(const Transfer& transfer, int lane, int64_t byte);

  // ---- matrix instructions of four warps (wgmma.cpp)
  /// A product in flight: its operands are read, and its sum is written, when its group is awaited.
  struct StartedProduct {
    const Instr* instr = nullptr;
    int first = 0;                // thread of the group
    int64_t left = 0, right = 0;  // offsets of the first elements
    int64_t a = 0, c = 0;         // first registers
  };
  void start_product(const Instr& instr);
  void await_products(size_t pending);
  template <class Sums>
  void multiply_group(const GroupProduct& product, const StartedProduct& started, Sums& sums);
  /// Calls fn(row, k, elements, count) for the elements of an operand: `count` of a row, from k on.
  void read_matrix(const StartedProduct& started, const MatrixOperand& operand,
                   const SharedMatrix& matrix, int64_t begin,
                   const std::function<void(int64_t, int64_t, const std::byte*, int)>& fn);
  void check_sums(const Instr& instr, const GroupProduct& product) const;
  /// While a product is in flight its sums do not exist: their registers count as never written.
  void set_sums_there(const StartedProduct& started, bool there);
  /// Marks the operands of a product, which nothing may overwrite until it is awaited.
  void set_operands_busy(const StartedProduct& started, bool busy);
  /// Traps if an access writes a byte that a product in flight reads.
  void check_not_busy(const Instr& instr, const Transfer& transfer, int lane, int64_t byte) const;
  void check_fenced(const Instr& instr, const Transfer& transfer, int lane) const;

  // ---- cluster.cpp
  void view(const Instr& instr);
  void check_cluster_access(const Instr& instr, const Transfer& transfer);
  /// The block of that rank. Traps unless it runs: `name` is of what the thread accesses there.
  Machine& visit(const Instr& instr, int lane, int rank, const Array& array,
                 const std::string& name) const;
  [[noreturn]] void trap_rank(const Instr& instr, int lane, int rank, const Array& array) const;
  void check_visitor() const;
  /// The index of a thread in the cluster, as shadows and clocks count.
  int number(int lane) const { return rank_ * kThreadsPerBlock + lane; }
  BlockOrder::CurrentThread current_thread(int lane) const {
    return {block_number_, block_number_ - rank_, number(lane), &neighbours_.clocks};
  }
  /// "thread 5", or "thread 5 of block 2 of the cluster" for one of another block.
  std::string thread_name(int number) const;

  // ---- device_calls.cpp
  void pointer(const Instr& instr);
  void require(const Instr& instr) const;
  void print(const Instr& instr) const;
  void extern_call(const Instr& instr);
  void mark(const Instr& instr) const;  // marks.cpp
  void count_steps(const Instr& instr);

  // ---- traps (checks.cpp)
  struct Fault {
    const char* code;
    std::string what;
    std::string argument = {};
    std::string expected = {};
    std::string got = {};
    std::string hint = {};
    int related = 0;  // statement
  };
  [[noreturn]] void trap(const Instr& instr, int lane, Fault fault) const;
  void check_overflow(const Instr& instr) const;
  void check_divisor(const Instr& instr) const;
  void check_uniform(const Instr& instr) const;
  void check_indices(const Instr& instr) const;
  void check_transfer(const Instr& instr, const Transfer& transfer, const std::byte* base);
  void check_bounds(const Instr& instr, const Transfer& transfer) const;
  void check_span(const Instr& instr, const Transfer& transfer, const std::byte* base) const;
  void check_initialised(const Instr& instr, const Storage& storage, int64_t element) const;
  void check_whole_warps(const Instr& instr, const char* what) const;
  /// "x" or "x[12, 7168]" in the author's words.
  std::string element_name(const Array& array, const std::vector<Slot>& indices, int lane) const;
  /// The same for a register of a thread.
  static std::string register_name(const Array& array, int64_t element, int lane);
  /// "x[12, 7168]", or "x[12, 7168..7175]" for all `width` elements.
  std::string element_name(const Transfer& transfer, int lane, int first, int width) const;

  // ---- races (races.cpp)
  void check_shared(const Instr& instr, const Transfer& transfer);
  /// Checks one thread's access to the memory of a block.
  void check_shared(const Instr& instr, const Transfer& transfer, int lane, Machine& owner) const;
  static int64_t shared_start(const Array& array);  // byte in the owner's arena
  int64_t offset_in_owner(const Transfer& transfer, int lane) const;
  // global_races.cpp
  /// Checks races on global elements within the cluster; records accesses for races between clusters.
  void check_global(const Instr& instr, const Transfer& transfer, const std::byte* base);
  /// Records the access of a thread to one granule. `value`: see GlobalShadow::write.
  std::optional<Conflict> note_global(const std::byte* at, Way way, int lane, int32_t statement,
                                      std::optional<uint64_t> value);
  /// The bits of the granule that a store puts `bit` bits after its first element.
  std::optional<uint64_t> stored_bits(const Transfer& transfer, const Columns& values, int lane,
                                      int64_t bit) const;
  const char* race_code(const Transfer& transfer, const Conflict& conflict) const;
  [[noreturn]] void trap_race(const Instr& instr, const Transfer& transfer, int lane,
                              const std::string& element, const Conflict& conflict) const;
  void check_landed(const Instr& instr, const Transfer& transfer, int lane, int64_t byte,
                    const SharedShadow& shadow) const;
  std::string shared_element_name(const Transfer& transfer, int lane, int64_t byte) const;

  // ---- counts (counts.cpp)
  void count_transfer(const Instr& instr, const Transfer& transfer);
  void note_access(const Instr& instr, const Transfer& transfer, const Counts& before);
  void count_global(const Transfer& transfer, int64_t element_bits);
  void count_shared(const Transfer& transfer, int64_t element_bits);
  void count_cluster(const Transfer& transfer, int64_t element_bits);

  // ---- slots
  std::byte* at(Slot slot) const { return frame_ + slot.offset; }
  template <class T>
  T* column(Slot slot) const {
    return reinterpret_cast<T*>(at(slot));
  }
  template <class T>
  T& uniform(Slot slot) const {
    return *column<T>(slot);
  }
  const Storage& storage(int index) const { return code_.arrays[static_cast<size_t>(index)]; }

  const Program& program_;
  const Bytecode& code_;
  const Launch& launch_;
  std::vector<std::byte> memory_;  // of the frame, the shared arena and the masks
  std::byte* frame_ = nullptr;     // slot offset zero
  std::byte* shared_ = nullptr;
  std::vector<Cursor> cursors_;  // of the block, then of each role
  Cursor* cursor_ = nullptr;     // that runs
  bool are_roles_running_ = false;
  std::vector<Cursor*> turns_;  // roles in the order of their turns
  uint32_t random_ = 0;
  bool went_on_ = false;  // whether the cursor made progress since it was resumed
  std::array<NamedBarrier, kMaxNamedBarriers + 1> named_barriers_;  // by id
  std::array<int64_t, 3> block_{};
  int64_t block_number_ = 0;
  std::unique_ptr<SharedShadow> shadow_;  // checked programs
  Neighbours& neighbours_;
  int rank_;
  bool has_ended_ = false;
  bool is_at_grid_barrier_ = false;
  bool is_at_barrier_ = false;  // of the cluster
  struct Visitor {
    int thread = 0;
    int32_t statement = 0;
  };
  std::optional<Visitor> visitor_;  // of another block, since the last cluster barrier; checked
  std::map<int64_t, Mbarrier> mbarriers_;                // by byte of the arena
  std::map<const std::byte*, WrittenMap> written_maps_;  // by their places
  // Checked programs that use the async proxy: the last store to each byte, with its thread's number of proxy
  // fences at that time; and each thread's number of proxy fences.
  std::vector<GenericStore> stores_;
  std::vector<uint32_t> fences_;
  std::vector<WarpClocks::VectorClock> fenced_;  // by warp: what was before its last proxy fence
  bool shares_arena_ = false;                    // checked, and shared arrays overlap
  std::vector<int32_t> busy_;  // by byte of shared memory: the product that reads it, or 0
  struct Products {
    std::vector<StartedProduct> started;             // since the last commit
    std::deque<std::vector<StartedProduct>> groups;  // committed, oldest first
  };
  ProductSums product_sums_;
  std::vector<Products> products_;  // by cursor
  Products& products() { return products_[static_cast<size_t>(cursor_ - cursors_.data())]; }
  const Products& products() const {
    return products_[static_cast<size_t>(cursor_ - cursors_.data())];
  }
  std::vector<std::deque<Landing>> in_flight_;  // by thread, oldest first
  std::vector<int64_t> groups_;                 // committed, by thread
  std::deque<StoreInFlight> boxes_;             // in flight, oldest first
  std::vector<int64_t> store_groups_;           // committed, by thread; empty: no tensor stores
  int left_ = 0;                                // threads that have returned
  Counts counts_;
  Accesses accesses_;
  WarpSteps steps_;
};

}  // namespace tessera::codegen::cpu
