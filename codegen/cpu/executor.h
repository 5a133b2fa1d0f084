#pragma once
// Runs the thread-IR program of a target on the CPU: each statement for all threads of a block under an active
// mask. With traps it is the checked twin of the GPU: what it accepts is what the GPU runs.
//
// Results are those of the GPU (design, "Numbers"): canonical NaNs from arithmetic, wrapping
// integers, clamped shifts, saturating conversions, no contraction. f16 and bf16 operations, fma
// included, compute in f32 and round once more. exp, log1p, tanh and rsqrt are within 1 ulp.
//
// The threads of a block run in lockstep. Roles take turns, each as far as it can go. Blocks run in
// any order on several CPU threads, but in ascending order on one thread where atomics make the order
// visible. The blocks of a cluster take turns in the same way, and all blocks of a grid that wait for
// each other. Accesses of two blocks to one element of a tensor are undefined if at least one writes,
// not both are atomic, and neither a grid barrier nor a signal separates them. Atomics take the threads
// of a block in order.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/thread_ir.h"
#include "dsl/base/tensor_view.h"

namespace tessera::codegen::cpu {

/// One kernel argument, in the order of Program::params. Pointers: `tensor`, whose memory span may
/// be accessed; null data if absent. Integer or boolean dims and scalars: `integer`. Float scalars:
/// `number`.
struct Argument {
  TensorView tensor = {};
  int64_t integer = 0;
  double number = 0;
};

/// Exact, repeatable counts of a run. Requests count warps with at least one active lane. Addresses
/// count from the start of a tensor, so counts do not depend on the host's addresses.
struct Counts {
  // Sectors are the distinct 32-byte sectors that a warp touches; the minimum is what its distinct
  // bytes would fill. Bytes are summed over the lanes.
  int64_t global_load_requests = 0;
  int64_t global_load_sectors = 0;
  int64_t global_load_least_sectors = 0;
  int64_t global_load_bytes = 0;
  int64_t global_store_requests = 0;
  int64_t global_store_sectors = 0;
  int64_t global_store_least_sectors = 0;
  int64_t global_store_bytes = 0;
  // Wavefronts above the ideal are bank conflicts. The ideal is one per phase: a warp for accesses
  // of up to 4 bytes, half a warp for 8, a quarter for 16.
  int64_t shared_requests = 0;
  int64_t shared_wavefronts = 0;
  int64_t shared_ideal_wavefronts = 0;
  // DSMEM accesses, without atomics.
  int64_t cluster_requests = 0;
  int64_t cluster_bytes = 0;
  int64_t cluster_barriers = 0;  // per block
  int64_t barriers = 0;          // per block; named ones per role that waits
  int64_t warp_barriers = 0;     // per warp
  int64_t shuffles = 0;          // any warp collective, per warp
  int64_t guards = 0;            // guards evaluated, per warp
  int64_t atomics = 0;           // per warp
  /// A fact of the program, not the run: see live_registers().
  int64_t live_registers = 0;
};

/// Every count with its name.
inline constexpr std::array<std::pair<std::string_view, int64_t Counts::*>, 20> kCountNames = {{
    {"global_load_requests", &Counts::global_load_requests},
    {"global_load_sectors", &Counts::global_load_sectors},
    {"global_load_least_sectors", &Counts::global_load_least_sectors},
    {"global_load_bytes", &Counts::global_load_bytes},
    {"global_store_requests", &Counts::global_store_requests},
    {"global_store_sectors", &Counts::global_store_sectors},
    {"global_store_least_sectors", &Counts::global_store_least_sectors},
    {"global_store_bytes", &Counts::global_store_bytes},
    {"shared_requests", &Counts::shared_requests},
    {"shared_wavefronts", &Counts::shared_wavefronts},
    {"shared_ideal_wavefronts", &Counts::shared_ideal_wavefronts},
    {"cluster_requests", &Counts::cluster_requests},
    {"cluster_bytes", &Counts::cluster_bytes},
    {"cluster_barriers", &Counts::cluster_barriers},
    {"barriers", &Counts::barriers},
    {"warp_barriers", &Counts::warp_barriers},
    {"shuffles", &Counts::shuffles},
    {"guards", &Counts::guards},
    {"atomics", &Counts::atomics},
    {"live_registers", &Counts::live_registers},
}};

/// The counts of one memory access over all its executions.
struct AccessCounts {
  SourceLoc loc;  // of the author's statement
  std::string array;
  DType dtype = DType::f32;
  int width = 1;  // elements per thread
  bool is_load = true;
  Counts counts;  // requests, sectors and bytes, or wavefronts
};

/// The marks of one warp (see ir::Print), in order. A step is an access, an exchange, a barrier or a product of 8
/// columns; indices and conditions take none. A warp that waits for others goes on at the step of the last of them.
struct WarpMarks {
  struct Mark {
    int event = 0;
    int64_t step = 0;
  };
  static constexpr size_t kMost = 1023;  // as on the GPU: prelude_marks.cpp
  std::vector<Mark> marks;
  int64_t dropped = 0;  // those after kMost
};

/// The sums of matrix instructions.
enum class Arithmetic : uint8_t {
  exact,   // c and the exact products in f64, in ascending k, one rounding
  target,  // bit-exact sums of the target's tensor cores; measured for sm_90 and sm_90a
};

struct Options {
  bool traps = false;        // stop at the first thing that is undefined or wrong, see run()
  int workers = 0;           // blocks run in parallel on this many CPU threads; 0 = all cores
  Counts* counts = nullptr;  // filled when given
  std::vector<AccessCounts>* accesses = nullptr;     // those that ran, in the order of the program
  std::function<void(std::string_view)> print = {};  // takes device prints; null = standard output
  Arithmetic arithmetic = Arithmetic::exact;
  std::atomic<int>* reported = nullptr;     // gets 1 + the number of a report, if any is made
  std::vector<WarpMarks>* marks = nullptr;  // by warp of Program::marked_block
  // Order in which roles that can run take turns: 0 = the first, else pseudo-random by this seed. The
  // results of a sound program do not depend on it, nor whether an unsound one traps.
  uint32_t schedule = 0;
};

/// A program prepared for execution. Immutable; several threads may call run().
///
///   Example:
///     const Executable executable(lower(kernel));
///     const Argument arguments[] = {{.tensor = x}, {.integer = rows}};
///     executable.run(arguments, {.traps = true});
class Executable {
 public:
  /// Throws Error: kind trap, code UNINITIALISED, for a variable read outside its scope; kind
  /// unsupported for arithmetic on a storage-only dtype (e4m3, e5m2, e2m1).
  explicit Executable(Program program);
  ~Executable();
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;

  const Program& program() const;

  /// Runs the whole grid; an extent of 0 is a no-op. Throws Error of kind argument for arguments
  /// that do not fit the parameters, a grid that is no multiple of the cluster, or one of waiting
  /// blocks that no GPU runs at once, and of kind trap, with the author's line, thread and block, of the lowest block that failed:
  ///   always            NULL_TENSOR; OOB of register arrays, of ranks in a cluster; ASSERT;
  ///                     DEADLOCK where no thread of a cluster can go on, or no block of a grid
  ///   with traps        OOB              logical index outside of the array or of the tile that the
  ///                                      author indexes, or address outside the array
  ///                     MISALIGNED       address no multiple of the access size
  ///                     UNINITIALISED    register slot or shared byte never written
  ///                     RACE             shared byte or global element, and no barrier between;
  ///                                      the other line is given. Threads of a cluster may give a
  ///                                      global element one value. Asynchronous copies read where
  ///                                      they start. Races between clusters come last, when all
  ///                                      have ended or met.
  ///                     CLUSTER_ACCESS   memory of a block that may not have begun, or has ended
  ///                     DIVERGENT_BARRIER  a barrier or warp collective that not all threads reach
  ///                     ROLE_BARRIER     a named barrier that other threads meet than it counts
  ///                     INDEX_OVERFLOW   i32 arithmetic that wraps on its way to an address
  ///                     FALSE_ASSUME     an assumption of the author's does not hold
  ///                     WRITE_READ_ONLY, DIV_BY_ZERO
  /// Without traps these are undefined, as on the GPU; an access whose guard is false touches
  /// nothing either way. After a trap the contents of written tensors are unspecified.
  void run(std::span<const Argument> arguments, const Options& options = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::codegen::cpu
