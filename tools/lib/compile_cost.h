#pragma once
// What it costs to get from a kernel's IR to a cubin: CPU time of this process, so that a busy
// machine does not matter.

#include <optional>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/nvrtc/target.h"

namespace tessera::tools {

struct CompileCost {
  std::string op, label, kernel;
  double lower_ms = 0;  // tile IR to CUDA text, median of 5
  double nvrtc_ms = 0;  // CUDA text to cubin, median of 5
  int registers = 0;
  int64_t spill_bytes = 0;

  double total_ms() const { return lower_ms + nvrtc_ms; }
};

/// Every kernel of an example.
std::vector<CompileCost> compile_costs(const kernels::OpInfo& op, const kernels::BenchCase& example,
                                       const runtime::Nvrtc& nvrtc, runtime::Target target);

/// A row per kernel; kernels above `limit_ms` are marked.
std::string compile_table(const std::vector<CompileCost>& costs, std::optional<double> limit_ms);
std::string compile_json(const std::vector<CompileCost>& costs);

}  // namespace tessera::tools
