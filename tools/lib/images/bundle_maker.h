#pragma once
// `tessera compile`: kernels ahead of time, for targets that need not be here.

#include <functional>
#include <string>
#include <vector>

#include "kernels/jit/target.h"
#include "kernels/op.h"
#include "runtime/cache/bundle.h"
#include "runtime/nvrtc/target.h"
#include "runtime/request.h"

namespace tessera::tools {

/// A kernel for a target.
struct Wanted {
  runtime::KernelRequest request;
  runtime::Target target;
};

/// The kernels of an op's examples and benchmark cases, with any number of tokens, for a target, each
/// Spec once. With a model those of the tile sizes that are stored for it; otherwise the standard ones.
std::vector<runtime::KernelRequest> requests_of(const kernels::OpInfo& op, runtime::Target target,
                                                const kernels::jit::GpuModel& model = {});
/// Those of one case.
std::vector<runtime::KernelRequest> requests_of(const kernels::OpInfo& op,
                                                const kernels::BenchCase& example,
                                                runtime::Target target,
                                                const kernels::jit::GpuModel& model = {});

/// The kernels of a recording (TESSERA_RECORD), as they are. Throws an argument error naming the
/// line.
std::vector<runtime::KernelRequest> requests_in(const std::string& path);

/// "sm_90a". Throws an argument error, unsupported for a target that does not exist.
runtime::Target target_of(const std::string& word);
/// "sm_90a,sm_100a", each once. Throws an argument error, for an empty list too.
std::vector<runtime::Target> parse_targets(const std::string& list);

struct Compiled {
  std::vector<runtime::BundleItem> items;
  std::vector<std::string> left_out;  // messages about kernels that their target cannot have
};

/// Compiles side by side. `progress` is told done and total, from any thread. Kernels with clusters are
/// left out for targets that have none.
Compiled compile_all(const std::vector<Wanted>& wanted, int jobs,
                     const std::function<void(size_t, size_t)>& progress);

}  // namespace tessera::tools
