#pragma once
// `tessera check`: the examples of an op on the CPU executor, every trap on, everything counted.

#include <optional>
#include <string>
#include <vector>

#include "kernels/jit/count_scope.h"
#include "kernels/op.h"

namespace tessera::tools {

struct CheckResult {
  std::string op;
  std::string label;
  int64_t least_bytes = 0;                          // what any implementation must move
  std::vector<kernels::jit::KernelCounts> kernels;  // in launch order
  std::string error;                                // text of the trap or error; empty = passed
};

/// Runs one example on inputs from `seed`. A trap is a result, not an exception.
CheckResult check_example(const kernels::OpInfo& op, const kernels::BenchCase& example,
                          uint64_t seed);

/// A row per kernel: global traffic against the least, sectors against bytes, bank conflicts,
/// synchronisation, guards.
std::string check_table(const std::vector<CheckResult>& results);
/// {"checks": [{"op", "case", "least_bytes", "error", "kernels": [{"kernel", counts...}]}]}
std::string check_json(const std::vector<CheckResult>& results);

}  // namespace tessera::tools
