// Executable: checks arguments and distributes clusters over worker threads.

#include "codegen/cpu/executor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "codegen/analysis/live_registers.h"
#include "codegen/cpu/machine/cluster.h"
#include "codegen/cpu/machine/grid_races.h"
#include "dsl/base/error.h"
#include "dsl/base/interrupt.h"
#include "dsl/base/target_facts.h"

namespace tessera::codegen::cpu {
namespace {

[[noreturn]] void argument_error(const Program& program, const std::string& argument,
                                 std::string what, std::string expected, std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .op = program.name,
               .what = std::move(what),
               .argument = argument,
               .expected = std::move(expected),
               .got = std::move(got)});
}

Launch::Memory check_tensor(const Program& program, const Param& param, const TensorView& tensor) {
  const DType wanted = param.array->dtype;
  if (tensor.device.is_cuda()) {
    argument_error(program, param.name,
                   fmt::format("argument '{}' is on the wrong device", param.name), "cpu",
                   to_string(tensor.device));
  }
  // Packed 4-bit data comes as bytes; a null tensor stands for an absent optional one.
  const bool packed = wanted == DType::e2m1 && bits(tensor.dtype) == 8;
  if (tensor.data != nullptr && bits(tensor.dtype) != bits(wanted) && !packed) {
    argument_error(program, param.name,
                   fmt::format("argument '{}' has the wrong dtype", param.name),
                   std::string(name(wanted)), std::string(name(tensor.dtype)));
  }
  return {static_cast<std::byte*>(tensor.data), tensor.data == nullptr ? 0 : tensor.span_bytes()};
}

/// A scalar in native storage.
uint64_t scalar_bits(const Program& program, const Param& param, const Argument& argument) {
  const DType type = param.var->type;
  uint64_t result = 0;
  if (type == DType::f64) return std::bit_cast<uint64_t>(argument.number);
  if (is_float(type)) {
    const auto number = static_cast<float>(argument.number);
    find_conversion(DType::f32, type)(&result, &number, nullptr, nullptr, 1);
    return result;
  }
  find_conversion(DType::i64, type)(&result, &argument.integer, nullptr, nullptr, 1);
  int64_t back = 0;
  find_conversion(type, DType::i64)(&back, &result, nullptr, nullptr, 1);
  if (back != argument.integer && type != DType::boolean) {
    argument_error(program, param.name, fmt::format("argument '{}' is out of range", param.name),
                   std::string(name(type)), fmt::format("{}", argument.integer));
  }
  return result;
}

Launch check_arguments(const Program& program, std::span<const Argument> arguments) {
  if (arguments.size() != program.params.size()) {
    argument_error(program, "", "the number of arguments is wrong",
                   fmt::format("{}", program.params.size()), fmt::format("{}", arguments.size()));
  }
  Launch launch;
  launch.memory.resize(arguments.size());
  launch.scalars.resize(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Param& param = program.params[i];
    if (param.array) {
      launch.memory[i] = check_tensor(program, param, arguments[i].tensor);
      // Whether it is present. An empty tensor may have a null address.
      const TensorView& tensor = arguments[i].tensor;
      launch.scalars[i] = tensor.data != nullptr || tensor.rank() > 0 ? 1 : 0;
    } else {
      launch.scalars[i] = scalar_bits(program, param, arguments[i]);
    }
  }
  return launch;
}

/// Merges accesses of one line that look the same: rounds of an unrolled loop.
std::vector<AccessCounts> by_line(const Bytecode& bytecode, const Machine::Accesses& accesses) {
  std::vector<AccessCounts> lines;
  for (const auto& [access, counts] : accesses) {
    const auto& [statement, transfer] = access;
    const Array& array = *bytecode.arrays[static_cast<size_t>(transfer->storage)].array;
    const AccessCounts line{bytecode.locs[static_cast<size_t>(statement)],
                            array.name,
                            array.dtype,
                            transfer->width,
                            transfer->is_load,
                            {}};
    auto same = std::find_if(lines.begin(), lines.end(), [&](const AccessCounts& other) {
      return to_string(other.loc) == to_string(line.loc) && other.array == line.array &&
             other.width == line.width && other.is_load == line.is_load;
    });
    if (same == lines.end()) same = lines.insert(lines.end(), line);
    add(same->counts, counts);
  }
  return lines;
}

/// The counts of one worker.
struct Part {
  Counts counts;
  Machine::Accesses accesses;
};

void report(const Program& program, const Bytecode& bytecode, const std::vector<Part>& parts,
            const Options& options) {
  if (options.counts != nullptr) {
    options.counts->live_registers = live_registers(program);
    for (const Part& part : parts) add(*options.counts, part.counts);
  }
  if (options.accesses != nullptr) {
    Machine::Accesses accesses;
    for (const Part& part : parts) add(accesses, part.accesses);
    *options.accesses = by_line(bytecode, accesses);
  }
}

void check_interrupted(const Program& program) {
  if (!is_interrupted()) return;
  throw Error({.kind = ErrorKind::trap,
               .op = program.name,
               .what = "the call was interrupted",
               .code = "CANCELLED"});
}

/// Traps at the first wait for a signal, when no block of the grid can go on.
[[noreturn]] void trap_no_signal(const std::vector<std::unique_ptr<Cluster>>& clusters,
                                 const std::vector<Cluster::Halt>& halts) {
  constexpr size_t kMostNamed = 8;
  std::vector<SignalWait> waiting;
  for (const auto& cluster : clusters) cluster->add_waiting(waiting);
  TESSERA_CHECK(!waiting.empty(), "blocks that stop for no reason");
  std::vector<std::string> states;
  for (size_t i = 0; i < std::min(waiting.size(), kMostNamed); ++i) {
    states.push_back(waiting[i].machine->awaited_signal(*waiting[i].cursor));
  }
  if (waiting.size() > kMostNamed) {
    states.push_back(fmt::format("{} others wait for signals", waiting.size() - kMostNamed));
  }
  for (const auto& [halt, what] : {std::pair(Cluster::Halt::grid_barrier, "at a grid barrier"),
                                   std::pair(Cluster::Halt::end, "at the end")}) {
    const auto count = std::count(halts.begin(), halts.end(), halt);
    if (count > 0) states.push_back(fmt::format("{} {}", count, what));
  }
  waiting.front().machine->trap_no_signal(*waiting.front().cursor,
                                          fmt::format("{}", fmt::join(states, "; ")),
                                          waiting.size() > 1 ? waiting[1].statement : 0);
}

/// The number of blocks that the largest GPU of today runs at once. Registers may allow fewer.
int64_t max_blocks_at_once(const Program& program) {
  constexpr int64_t kMultiprocessors = 192;
  constexpr int64_t kReserved = 1024;  // bytes of shared memory, for each block
  constexpr TargetFacts kLargest = facts_of({9, 0, 'a'});
  const int64_t per_multiprocessor = std::min<int64_t>(
      {kLargest.blocks, kLargest.threads / program.threads,
       (kLargest.shared_memory + kReserved) / (program.shared_bytes + kReserved)});
  return kMultiprocessors * std::max<int64_t>(1, per_multiprocessor);
}

/// Refuses a grid that no GPU runs at once, before its blocks take memory: a launch refuses it there.
void check_runs_at_once(const Program& program, const std::array<int64_t, 3>& grid) {
  const int64_t most = max_blocks_at_once(program);
  if (grid[0] <= most && grid[1] <= most && grid[2] <= most &&
      grid[0] * grid[1] * grid[2] <= most) {
    return;
  }
  throw Error(
      {.kind = ErrorKind::argument,
       .op = program.name,
       .what = "the blocks of the grid wait for each other, and fit on no device at once",
       .expected = fmt::format("at most {} blocks of {} threads and {} bytes of shared memory",
                               most, program.threads, program.shared_bytes),
       .got = fmt::format("{} x {} x {} blocks", grid[0], grid[1], grid[2]),
       .hint = "let each block do more, for example by k.persistent"});
}

/// Clusters that wait for each other take turns on one thread, each from one grid barrier or wait for a
/// signal to the next; met() is called when all have arrived at a barrier or at the end.
template <class F>
void run_together(const Program& program, const Bytecode& bytecode, const Launch& launch,
                  int64_t clusters, const std::function<void()>& met, const F& count) {
  using Halt = Cluster::Halt;
  std::vector<std::unique_ptr<Cluster>> all;
  for (int64_t i = 0; i < clusters; ++i) {
    all.push_back(std::make_unique<Cluster>(program, bytecode, launch));
    all.back()->start(i);
  }
  std::vector<Halt> halts(all.size(), Halt::signal);
  for (bool has_ended = false; !has_ended;) {
    check_interrupted(program);
    bool went_on = false;
    for (size_t i = 0; i < all.size(); ++i) {
      if (halts[i] != Halt::signal) continue;
      halts[i] = all[i]->resume();
      went_on = all[i]->went_on() || went_on;
    }
    if (std::find(halts.begin(), halts.end(), Halt::signal) != halts.end()) {
      if (!went_on) trap_no_signal(all, halts);
      continue;
    }
    has_ended = halts.front() == Halt::end;
    TESSERA_CHECK(std::count(halts.begin(), halts.end(), halts.front()) == clusters,
                  "blocks that end while others wait at a barrier of the grid");
    met();
    std::fill(halts.begin(), halts.end(), Halt::signal);  // from the barrier on
  }
  for (const auto& cluster : all) count(*cluster);
}

/// Hands out clusters in order and keeps the error of the lowest one, so that the reported error
/// does not depend on timing.
class ClusterQueue {
 public:
  explicit ClusterQueue(int64_t clusters, int64_t batch) : clusters_(clusters), batch_(batch) {}

  /// Runs run_cluster(index) until no cluster is left. An error cancels the clusters above it; those
  /// below still run.
  template <class F>
  void drain(const F& run_cluster) {
    for (;;) {
      const int64_t first = next_.fetch_add(batch_);
      if (first >= clusters_) return;
      for (int64_t i = first; i < std::min(first + batch_, clusters_); ++i) {
        if (i > failed_.load(std::memory_order_relaxed)) return;
        try {
          run_cluster(i);
        } catch (...) {
          fail(i, std::current_exception());
          return;
        }
      }
    }
  }

  void fail(int64_t cluster, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (cluster >= failed_) return;
    failed_ = cluster;
    error_ = std::move(error);
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  int64_t clusters_;
  int64_t batch_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> failed_{std::numeric_limits<int64_t>::max()};
  std::mutex mutex_;
  std::exception_ptr error_;
};

std::vector<WarpMarks>* begin_marks(const Program& program, const Options& options) {
  if (options.marks != nullptr) {
    options.marks->assign(static_cast<size_t>(program.block().num_warps()), {});
  }
  return options.marks;
}

void check_grid(const Program& program, const std::array<int64_t, 3>& grid) {
  if (grid[0] % program.cluster == 0) return;
  argument_error(program, "", "the first extent of the grid is no multiple of the cluster",
                 fmt::format("a multiple of {}", program.cluster), fmt::format("{}", grid[0]));
}

}  // namespace

struct Executable::Impl {
  Program program;
  Bytecode fast;
  // Compiled on first use: most launches run without traps.
  mutable std::once_flag checked_once;
  mutable std::optional<Bytecode> checked;

  explicit Impl(Program p) : program(std::move(p)), fast(compile(program, Checks::off)) {}

  const Bytecode& bytecode(bool traps) const {
    if (!traps) return fast;
    std::call_once(checked_once, [this] { checked = compile(program, Checks::on); });
    return *checked;
  }
};

Executable::Executable(Program program) : impl_(std::make_unique<Impl>(std::move(program))) {}
Executable::~Executable() = default;
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;

const Program& Executable::program() const {
  return impl_->program;
}

void Executable::run(std::span<const Argument> arguments, const Options& options) const {
  const Program& program = impl_->program;
  Launch launch = check_arguments(program, arguments);
  launch.count_accesses = options.accesses != nullptr;
  launch.count = options.counts != nullptr || launch.count_accesses;
  if (options.print) launch.print = &options.print;
  launch.reported = options.reported;
  launch.marks = begin_marks(program, options);
  launch.arithmetic = options.arithmetic;
  if (options.arithmetic == Arithmetic::target && !facts_of(program.target).has_known_sums) {
    throw Error({.kind = ErrorKind::unsupported,
                 .op = program.name,
                 .what = "the sums of this target's tensor cores are not known",
                 .expected = "a program that is lowered for sm_90 or sm_90a",
                 .got = to_string(program.target),
                 .code = "ARITHMETIC"});
  }
  launch.schedule = options.schedule;
  if (options.counts != nullptr) *options.counts = {};
  if (options.accesses != nullptr) options.accesses->clear();
  const Bytecode& bytecode = impl_->bytecode(options.traps);

  std::vector<Part> parts;
  Cluster first(program, bytecode, launch);
  const std::array<int64_t, 3> grid = first.grid();
  if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) return;
  check_grid(program, grid);
  if (program.cooperative) check_runs_at_once(program, grid);
  const int64_t clusters = grid[0] * grid[1] * grid[2] / program.cluster;
  std::optional<GridRaces> races;
  if (options.traps && clusters > 1) {
    launch.grid_shadow = races.emplace(program, bytecode, arguments, launch, grid).shadow();
    launch.block_order = races->order();
  }
  const auto met = [&] {
    if (races) races->meet();
  };
  if (program.cooperative) {
    run_together(program, bytecode, launch, clusters, met, [&](const Cluster& cluster) {
      parts.push_back({cluster.counts(), cluster.accesses()});
    });
    return report(program, bytecode, parts, options);
  }
  const int64_t cores = options.workers > 0
                            ? options.workers
                            : std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t workers = bytecode.in_block_order ? 1 : std::min(cores, clusters);
  // Several batches per worker balance blocks of different cost.
  ClusterQueue queue(clusters, std::clamp<int64_t>(clusters / (workers * 16), 1, 64));
  const auto drain = [&](Cluster& cluster) {
    queue.drain([&](int64_t index) {
      check_interrupted(program);
      cluster.start(index);
      cluster.resume();
    });
  };

  std::vector<std::thread> threads;
  parts.resize(static_cast<size_t>(workers - 1));
  const auto work = [&](Part& part) {
    try {
      Cluster cluster(program, bytecode, launch);
      drain(cluster);
      part = {cluster.counts(), cluster.accesses()};
    } catch (...) {
      queue.fail(-1, std::current_exception());  // not a trap: no memory for the frame
    }
  };
  try {
    for (Part& part : parts) threads.emplace_back(work, std::ref(part));
  } catch (const std::system_error&) {
    // The system has no more threads; the existing ones do the work.
  }
  drain(first);
  for (std::thread& thread : threads) thread.join();
  queue.rethrow();
  met();
  parts.push_back({first.counts(), first.accesses()});
  report(program, bytecode, parts, options);
}

}  // namespace tessera::codegen::cpu
