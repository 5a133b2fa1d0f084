#include "kernels/jit/prepare.h"

#include <array>
#include <utility>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "dsl/base/error.h"
#include "kernels/jit/call_context.h"
#include "kernels/jit/dry_launch.h"
#include "kernels/jit/plan_builder.h"
#include "runtime/parallel.h"

namespace tessera::kernels::jit {
namespace {

/// While it lives, values of tensors are not looked at: a call that writes them may have been prepared only, too.
class AnyValues {
 public:
  AnyValues() : before_(std::exchange(call_context().takes_any_values, true)) {}
  ~AnyValues() { call_context().takes_any_values = before_; }
  AnyValues(const AnyValues&) = delete;
  AnyValues& operator=(const AnyValues&) = delete;

 private:
  const bool before_;
};

void make_prepared(const std::function<void()>& call, std::stop_token stop) {
  const CallModeScope scope({.until = CallMode::Until::prepared, .stop = std::move(stop)});
  const AnyValues values;
  call();
}

}  // namespace

void prepare(const std::function<void()>& call) {
  make_prepared(call, call_context().mode.stop);
}

void prepare_all(std::span<const std::function<void()>> calls, const PrepareOptions& options) {
  const int jobs =
      options.jobs > 0 ? options.jobs : runtime::num_jobs(runtime::Runtime::instance().options());
  runtime::run_in_parallel(calls.size(), jobs, options.stop,
                           [&](size_t i) { make_prepared(calls[i], options.stop); });
}

LaunchPlan plan(std::span<const TensorView> tensors, const std::function<void()>& call) {
  std::vector<const TensorView*> pointers;
  for (const TensorView& view : tensors) pointers.push_back(&view);
  PlanBuilder launches(pointers);
  {
    const CallModeScope scope({.until = CallMode::Until::prepared, .plan = &launches});
    call();
  }
  if (auto made = std::move(launches).plan()) return *std::move(made);
  throw Error(
      {.kind = ErrorKind::argument,
       .what = "this call cannot become a launch plan",
       .expected = "a call whose kernels use the given CUDA tensors only, each with its own memory",
       .got = "a kernel on the CPU, on other memory, or on memory of several tensors"});
}

std::vector<runtime::KernelRequest> kernels_needed(const std::function<void()>& call) {
  std::vector<runtime::KernelRequest> requests;
  for (DryLaunch& launch : launches_needed(call)) requests.push_back(std::move(launch.request));
  return requests;
}

std::vector<DryLaunch> launches_needed(const std::function<void()>& call) {
  std::vector<DryLaunch> launches;
  const CallModeScope scope({.until = CallMode::Until::named, .named = &launches});
  call();
  return launches;
}

std::string cuda_text(const ir::Kernel& kernel, Target target) {
  return codegen::cuda::emit(codegen::lower(kernel, target)).text;
}

}  // namespace tessera::kernels::jit
