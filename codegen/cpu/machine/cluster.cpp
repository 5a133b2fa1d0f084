// Cluster: the blocks of one cluster, one Machine each, take turns on one thread. resume() gives every block a turn until
//
//   all have ended                       the cluster has ended
//   all wait at one barrier              of the cluster: clocks are joined and all go on; of the grid: the caller's business
//   some stand and none made progress    a wait for a signal of another cluster is the caller's business (Halt::signal), any
//                                        other is a DEADLOCK
//   some wait, others have ended or      the barrier is never complete: DIVERGENT_BARRIER, told at the block that waits
//   wait at a barrier of another kind
//
// The memory of another block is reached by the distance between the two blocks' shared memories in this process (view()):
// an address of this block plus it. Checked runs first ask whose memory it is. It may be accessed once a barrier of the cluster has
// been met, since before that its block may not have begun, and until its block has ended; a block that ends is asked for
// visitors since the last barrier (check_visitor), as it ends sooner on a GPU than here.

#include "codegen/cpu/machine/cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

/// Bytes of the smallest element of the tensors that threads may race on: no access to them is smaller.
int smallest_raced_element(const Bytecode& bytecode) {
  int smallest = 8;
  for (const Storage& storage : bytecode.arrays) {
    const Array& array = *storage.array;
    if (array.space != ArraySpace::global || !storage.ways.may_race()) continue;
    smallest = std::min(smallest, array.dtype == DType::e2m1 ? 1 : bytes(array.dtype));
  }
  return smallest;
}

}  // namespace

int num_mbarriers(const Program& program) {
  int64_t sum = 0;
  for (const ArrayRef& array : program.shared) sum += array->is_mbarriers() ? array->size : 0;
  return static_cast<int>(sum);
}

Neighbours::Neighbours(const Program& program, const Bytecode& bytecode)
    : clocks(program.cluster, program.threads, program.cluster * num_mbarriers(program)) {
  if (bytecode.checked) {
    global_shadow.emplace(clocks, bytecode.parts_meet(), smallest_raced_element(bytecode));
  }
}

void Neighbours::start() {
  clocks.cluster_barrier();
  have_met = false;
  released.clear();
  if (global_shadow) global_shadow->start_cluster();
}

Cluster::Cluster(const Program& program, const Bytecode& bytecode, const Launch& launch)
    : launch_(launch), neighbours_(program, bytecode) {
  for (int rank = 0; rank < program.cluster; ++rank) {
    machines_.push_back(std::make_unique<Machine>(program, bytecode, launch, neighbours_, rank));
    neighbours_.blocks.push_back(machines_.back().get());
  }
}

void Cluster::start(int64_t index) {
  const std::array<int64_t, 3> extents = grid();
  neighbours_.start();
  int64_t block = first_block_ = index * static_cast<int64_t>(machines_.size());
  for (const auto& machine : machines_) {
    machine->start_block(
        {block % extents[0], block / extents[0] % extents[1], block / extents[0] / extents[1]},
        block);
    ++block;
  }
}

Cluster::Halt Cluster::resume() {
  went_on_ = false;
  for (;;) {
    bool went_on = false;
    for (const auto& machine : machines_) went_on = machine->resume() || went_on;
    went_on_ = went_on_ || went_on;
    const Machine* ended = nullptr;
    const Machine* waits = nullptr;  // at a barrier
    Machine* stands = nullptr;       // its threads wait for others
    for (const auto& machine : machines_) {
      if (machine->has_ended()) {
        ended = machine.get();
      } else if (machine->is_at_barrier()) {
        waits = machine.get();
      } else {
        stands = machine.get();
      }
    }
    if (stands != nullptr) {
      if (went_on) continue;
      std::vector<SignalWait> signals;
      add_waiting(signals);
      if (!signals.empty()) return Halt::signal;
      stands->trap_deadlock();
    }
    if (waits == nullptr) return Halt::end;
    if (ended != nullptr) waits->trap_alone(*ended);
    const bool meets_grid = waits->is_at_grid_barrier();
    for (const auto& machine : machines_) {
      if (machine->is_at_grid_barrier() != meets_grid) waits->trap_alone(*machine);
    }
    neighbours_.clocks.cluster_barrier();
    if (launch_.block_order != nullptr) {
      launch_.block_order->barrier(first_block_);
    }
    neighbours_.have_met = true;
    int64_t step = 0;
    for (const auto& machine : machines_) step = std::max(step, machine->last_step());
    for (const auto& machine : machines_) machine->pass_cluster_barrier(step);
    if (meets_grid) return Halt::grid_barrier;
  }
}

void Cluster::add_waiting(std::vector<SignalWait>& waits) const {
  for (const auto& machine : machines_) {
    const std::vector<SignalWait> own = machine->signal_waits();
    waits.insert(waits.end(), own.begin(), own.end());
  }
}

Counts Cluster::counts() const {
  Counts sum;
  for (const auto& machine : machines_) add(sum, machine->counts());
  return sum;
}

Machine::Accesses Cluster::accesses() const {
  Machine::Accesses sum;
  for (const auto& machine : machines_) add(sum, machine->accesses());
  return sum;
}

void add(Counts& sum, const Counts& part) {
  for (const auto& [name, count] : kCountNames) sum.*count += part.*count;
}

void add(Machine::Accesses& sum, const Machine::Accesses& part) {
  for (const auto& [access, counts] : part) add(sum[access], counts);
}

// ---- Machine: cluster barriers and DSMEM

void Machine::cluster_barrier(const Instr& instr) {
  is_at_barrier_ = true;
  if (launch_.count) ++counts_.cluster_barriers;
  if (code_.checked) check_whole_block(instr, "a cluster barrier");
}

void Machine::trap_alone(const Machine& other) const {
  trap(code_.block[cursors_[0].next - 1], 0,
       {.code = "DIVERGENT_BARRIER",
        .what = fmt::format("a {} barrier that block {} of the cluster never reaches",
                            is_at_grid_barrier_ ? "grid" : "cluster", other.rank_),
        .expected = fmt::format("all {} blocks of the cluster", neighbours_.blocks.size()),
        .got = fmt::format("block {} {}", other.rank_,
                           other.has_ended_ ? "has ended" : "waits at another barrier")});
}

void Machine::view(const Instr& instr) {
  const Array& array = *storage(instr.index).array;
  const int32_t* ranks = column<int32_t>(instr.args[0]);
  int64_t* offsets = column<int64_t>(instr.out);
  for_each_lane(mask(), [&](int lane) {
    if (ranks[lane] < 0 || ranks[lane] >= program_.cluster) {
      trap_rank(instr, lane, ranks[lane], array);
    }
    const std::byte* owner = neighbours_.blocks[static_cast<size_t>(ranks[lane])]->shared_;
    const auto apart = static_cast<int64_t>(reinterpret_cast<uintptr_t>(owner) -
                                            reinterpret_cast<uintptr_t>(shared_));
    offsets[lane] = apart * 8 / bits(array.dtype);
  });
}

void Machine::check_cluster_access(const Instr& instr, const Transfer& transfer) {
  const Storage& view = storage(transfer.storage);
  const int32_t* ranks = column<int32_t>(view.block);
  for_each_lane(mask(), [&](int lane) {
    Machine& owner = visit(instr, lane, ranks[lane], *view.array,
                           element_name(transfer, lane, 0, transfer.width));
    check_shared(instr, transfer, lane, owner);
  });
}

Machine& Machine::visit(const Instr& instr, int lane, int rank, const Array& array,
                        const std::string& name) const {
  if (rank < 0 || rank >= program_.cluster) trap_rank(instr, lane, rank, array);
  Machine& owner = *neighbours_.blocks[static_cast<size_t>(rank)];
  if (!code_.checked) return owner;
  const bool too_late = owner.has_ended();
  if (too_late || !neighbours_.have_met) {
    trap(instr, lane,
         {.code = "CLUSTER_ACCESS",
          .what = fmt::format("{} of block {} of the cluster, which {}", name, rank,
                              too_late ? "has ended" : "may not have begun"),
          .argument = array.name,
          .expected = too_late ? "a cluster barrier between this access and its end"
                               : "a cluster barrier before the first access",
          .got = "none"});
  }
  if (&owner != this) owner.visitor_ = Visitor{number(lane), instr.statement};
  return owner;
}

void Machine::trap_rank(const Instr& instr, int lane, int rank, const Array& array) const {
  trap(instr, lane,
       {.code = "OOB",
        .what = fmt::format("{} of block {} of the cluster", array.name, rank),
        .argument = array.name,
        .expected = fmt::format("a rank from 0 to {}", program_.cluster - 1),
        .got = fmt::format("{}", rank)});
}

/// Traps if the block ends while other blocks access its memory.
void Machine::check_visitor() const {
  if (!visitor_) return;
  Instr last{};
  last.code = Code::leave;
  trap(last, 0,
       {.code = "CLUSTER_ACCESS",
        .what = fmt::format("block {} of the cluster ends while {} may be at its memory", rank_,
                            thread_name(visitor_->thread)),
        .expected = "a cluster barrier between that access and the end",
        .got = "none",
        .related = visitor_->statement});
}

std::string Machine::thread_name(int number) const {
  const int block = number / kThreadsPerBlock;
  const int thread = number % kThreadsPerBlock;
  return block == rank_ ? fmt::format("thread {}", thread)
                        : fmt::format("thread {} of block {} of the cluster", thread, block);
}

}  // namespace tessera::codegen::cpu
