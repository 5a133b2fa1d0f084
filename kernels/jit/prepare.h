#pragma once
// Work before the first launch: compiles and loads the kernels of calls in parallel, lists the
// kernels that a bundle must hold for them, and returns a kernel's CUDA text.

#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/target.h"
#include "dsl/ir/tile.h"
#include "kernels/jit/launch_plan.h"
#include "runtime/request.h"

namespace tessera::kernels::jit {

/// Compiles and loads the kernels of `call` and launches nothing. Afterwards the call may be made
/// during stream capture. Throws what the call would throw, but for values of CPU tensors: it reads none, since what writes
/// them may be prepared only, too.
///
/// Example: jit::prepare([&] { transpose({.x = x, .out = out}, stream); });
TESSERA_API void prepare(const std::function<void()>& call);

/// How prepare_all works.
struct PrepareOptions {
  int jobs = 0;  // threads; 0 = TESSERA_JOBS, else one per core, at most 8 and one per 512 MB free
  std::stop_token stop = {};  // cancels the compiles; skips calls that have not begun
};

/// Prepares many calls concurrently. Tries all, then throws the first error.
TESSERA_API void prepare_all(std::span<const std::function<void()>> calls,
                             const PrepareOptions& options = {});

/// Records a checked call as a plan for other memory. `tensors` are those of the call. Launches
/// nothing.
///
/// Errors: those of the call; argument, if the call is not on CUDA tensors or uses memory that is
///         none of `tensors`.
/// Example: auto again = jit::plan(std::array{x, out}, [&] { transpose({.x = x, .out = out}, nullptr); });
///          again(std::array{x2.data, out2.data}, stream);
TESSERA_API LaunchPlan plan(std::span<const TensorView> tensors, const std::function<void()>& call);

/// Returns the kernels that `call` needs on CUDA tensors of a device that need not exist. Does not
/// read their data: any distinct, aligned addresses will do.
TESSERA_API std::vector<runtime::KernelRequest> kernels_needed(const std::function<void()>& call);

/// Returns the whole CUDA text of a kernel as compiled for a target, sm_90a where none is given.
/// Needs neither a device nor tensors.
///
/// Errors: program, those of lowering.
/// Example: std::puts(jit::cuda_text(rmsnorm(1000)).c_str());
TESSERA_API std::string cuda_text(const ir::Kernel& kernel, Target target = {});

}  // namespace tessera::kernels::jit
