#include "kernels/jit/kernel_recording.h"

#include <fmt/format.h>

#include "dsl/base/error.h"
#include "kernels/jit/call_context.h"
#include "kernels/jit/prepare.h"
#include "kernels/jit/target.h"
#include "runtime/options.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {

bool is_recorded(Device device) {
  return device.is_cuda() && call_context().mode.until != CallMode::Until::named &&
         !runtime::Runtime::instance().options().record.empty();
}

void record(const std::string& op, Device device, const std::function<void()>& calls) {
  runtime::Runtime& runtime = runtime::Runtime::instance();
  try {
    const runtime::Target target = runtime.target_on(device.ordinal);
    const TargetScope scope(target, gpu_model(device));
    for (const runtime::KernelRequest& request : kernels_needed(calls)) {
      runtime.image(request, target);
    }
  } catch (const Error& error) {
    runtime.warn_once(
        "record " + op,
        fmt::format("{}: kernels for other numbers of tokens are not in the recording "
                    "(TESSERA_RECORD): {}",
                    op, error.what()));
  }
}

}  // namespace tessera::kernels::jit
