#pragma once
// The cost of the way from a kernel's IR to a cubin: CPU time of this process. That too depends on
// the machine, and on what runs on the other half of its cores: a fixed kernel, compiled in turns
// with the one that is measured, tells by how much.

#include <optional>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/nvrtc/target.h"

namespace tessera::tools {

/// The limits of a kernel.
struct CompileLimit {
  double lower_ms = 0, nvrtc_ms = 0;
};

/// 15 and 100 ms for casts and transposes, 60 and 400 ms for ops that compute more, 60 and 800 ms for attention.
CompileLimit compile_limit(const kernels::OpInfo& op);

struct CompileCost {
  std::string op, label, kernel;
  double lower_ms = 0;  // tile IR to CUDA text, median
  double nvrtc_ms = 0;  // CUDA text to cubin, median
  int registers = 0;
  int64_t spill_bytes = 0;
  CompileLimit limit;
  double slowness = 1;  // NVRTC's time for the fixed kernel by that of a quiet core

  double total_ms() const { return lower_ms + nvrtc_ms; }
  /// Time by limit, of whichever of the two is worse: over it above 1. A slow machine may take
  /// longer by its slowness; a fast one gets no less time.
  double share_of_limit() const;
};

/// NVRTC's time for a fixed kernel by that of a quiet core.
double slowness_of_nvrtc(const runtime::Nvrtc& nvrtc, runtime::Target target);

/// The cases that stand for an op: its examples, four of them at most, spread evenly.
std::vector<const kernels::BenchCase*> representatives(const kernels::OpInfo& op);

/// Every kernel of an example, five times. With `remeasure_above`, a share of the limit, a kernel that
/// stays below half of it is measured once; one that exceeds it, up to twice more, and the least
/// counts.
std::vector<CompileCost> compile_costs(const kernels::OpInfo& op, const kernels::BenchCase& example,
                                       const runtime::Nvrtc& nvrtc, runtime::Target target,
                                       std::optional<double> remeasure_above = std::nullopt);

/// A row per kernel; what is over its limit is marked.
std::string compile_table(const std::vector<CompileCost>& costs);
std::string compile_json(const std::vector<CompileCost>& costs);

}  // namespace tessera::tools
