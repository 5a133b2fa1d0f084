#pragma once
// `tessera check`: the examples of an op on the CPU executor, every trap on, everything counted. It runs the program of
// the thread's TargetScope, else of Options::cpu_target.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/cpu/executor.h"
#include "kernels/op.h"
#include "runtime/image.h"

namespace tessera::tools {

/// The work of one kernel of a call, and its share of the machine.
struct KernelWork {
  std::string kernel;
  codegen::cpu::Counts counts;
  std::vector<codegen::cpu::AccessCounts> accesses;   // in the order of the program
  std::optional<runtime::KernelResources> resources;  // see add_resources()
  int64_t shared_bytes = 0;                           // per block; with the resources

  /// Between the caches: every sector touched.
  int64_t moved_bytes() const;
  int64_t sectors_over_least() const;
  int64_t bank_conflicts() const;
};

struct CheckResult {
  std::string op;
  std::string label;
  int64_t least_bytes = 0;          // what any implementation must move
  std::vector<KernelWork> kernels;  // in launch order
  std::string error;                // text of the trap or error; empty = passed
};

/// Runs one example on inputs from `seed`. A trap is a result, not an exception.
CheckResult check_example(const kernels::OpInfo& op, const kernels::BenchCase& example,
                          uint64_t seed);

/// Adds registers, spills and shared memory to the kernels of a result of this example, which ran for the same target, from the
/// image of each. Nothing to do for one that failed.
using ImageOf = std::function<runtime::Image(const ir::Kernel&)>;
void add_resources(CheckResult& result, const kernels::OpInfo& op,
                   const kernels::BenchCase& example, const ImageOf& image_of);

/// A line per case with its verdict, and below it a row per kernel: traffic against the least, bank
/// conflicts, synchronisation, guards, registers. `tessera check --help` explains the columns.
std::string check_table(const std::vector<CheckResult>& results);
/// A row per access to memory of the kernels, those with the most sectors and wavefronts too many
/// first: "load 8 x bf16 x" at a line.
std::string access_table(const std::vector<CheckResult>& results);
/// {"checks": [{"op", "case", "least_bytes", "error", "kernels": [{"kernel", "moved_bytes",
/// "sectors_over_least", "bank_conflicts", each count by its name; "registers", "spill_bytes" and
/// "shared_bytes" where there are resources; "accesses": [{"line", "access", "requests", "sectors",
/// "least_sectors", "wavefronts", "ideal_wavefronts"}]}]}]}
std::string check_json(const std::vector<CheckResult>& results);

}  // namespace tessera::tools
