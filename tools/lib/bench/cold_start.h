#pragma once
// The cost of the first call of a process, with an empty cache and with a warm one.

#include <string>
#include <vector>

#include "kernels/op.h"
#include "runtime/nvrtc/target.h"

namespace tessera::tools {

struct ColdStart {
  std::string op, label;
  double context_ms = 0;  // driver, context, tensors: not part of the others
  double empty_ms = 0;  // the first call until it is done, nothing on disk: opens the compiler too
  double warm_ms = 0;   // the same in a process that finds its kernels on disk
};

/// Medians of three processes each, which this one starts: it must not have used a GPU or made the
/// process's runtime yet. Without a GPU the kernels are only brought to a cubin for `target`.
ColdStart cold_start(const kernels::OpInfo& op, const kernels::BenchCase& example, bool on_gpu,
                     runtime::Target target);

std::string cold_table(const std::vector<ColdStart>& costs);
std::string cold_json(const std::vector<ColdStart>& costs);

}  // namespace tessera::tools
