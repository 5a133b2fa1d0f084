#pragma once
// Work before the first launch: compile and load the kernels of calls ahead, in parallel; name the
// kernels that a bundle must hold for them; return a kernel's CUDA text.

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

/// Compiles and loads what `call` needs and launches nothing. Afterwards the call may be made while
/// its stream is captured. Throws what the call would throw.
///
/// Example: jit::prepare([&] { transpose({.x = x, .out = out}, stream); });
TESSERA_API void prepare(const std::function<void()>& call);

/// How prepare_all works.
struct PrepareOptions {
  int jobs = 0;  // threads; 0 = TESSERA_JOBS, else one per core, at most 8 and one per 512 MB free
  std::stop_token stop = {};  // ends the compiles; calls not begun are left out
};

/// The same for many calls side by side. All are tried; then the first error is thrown.
TESSERA_API void prepare_all(std::span<const std::function<void()>> calls,
                             const PrepareOptions& options = {});

/// A checked call as a plan for other memory. `tensors` are those of the call; nothing is launched.
///
/// Errors: those of the call; argument, if the call is not on CUDA tensors or uses memory that is
///         none of `tensors`.
/// Example: auto again = jit::plan(std::array{x, out}, [&] { transpose({.x = x, .out = out}, nullptr); });
///          again(std::array{x2.data, out2.data}, stream);
TESSERA_API LaunchPlan plan(std::span<const TensorView> tensors, const std::function<void()>& call);

/// The kernels that `call` needs on CUDA tensors of a device that need not exist. Their data is not
/// touched: any distinct, aligned addresses will do.
TESSERA_API std::vector<runtime::KernelRequest> kernels_needed(const std::function<void()>& call);

/// The CUDA text of a kernel, whole, as the compiler gets it for a target; without one, a text that
/// every target compiles. Needs neither a device nor tensors.
///
/// Errors: program, those of lowering.
/// Example: std::puts(jit::cuda_text(rmsnorm(1000)).c_str());
TESSERA_API std::string cuda_text(const ir::Kernel& kernel, Target target = {});

}  // namespace tessera::kernels::jit
