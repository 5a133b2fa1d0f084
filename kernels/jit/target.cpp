#include "kernels/jit/target.h"

#include <optional>
#include <utility>

#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"
#include "kernels/jit/call_context.h"
#include "runtime/driver/device.h"
#include "runtime/options.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {
namespace {

/// False for calls that only list their kernels, which are for a device that need not exist.
bool exists(const CallContext& context, Device device) {
  return device.is_cuda() && context.mode.until != CallMode::Until::named;
}

}  // namespace

runtime::Target target_of(const CallContext& context, Device device) {
  runtime::Runtime& runtime = runtime::Runtime::instance();
  if (exists(context, device)) return runtime.target_on(device.ordinal);
  return context.target ? *context.target
                        : runtime::parse_target(runtime.options().cpu_target).value();
}

runtime::Target target_of(Device device) {
  return target_of(call_context(), device);
}

int cluster_limit(Device device) {
  return facts_of(target_of(device)).max_cluster;
}

int64_t shared_memory_limit(Device device) {
  return facts_of(target_of(device)).shared_memory;
}

bool has_wgmma(Device device) {
  // A bundle may hold another target of the GPU than the host's choices are made for.
  const runtime::Target target = target_of(device);
  return facts_of(runtime::targets_that_run_on(target.major, target.minor).front()).has_wgmma;
}

void launch_in_clusters(Device device, const std::function<void(int limit)>& launch) {
  try {
    launch(cluster_limit(device));
  } catch (const Error& error) {
    if (error.code() != "CLUSTER_TOO_LARGE") throw;
    launch(1);
  }
}

GpuModel gpu_model(Device device) {
  if (!device.is_cuda()) return {};
  const CallContext& context = call_context();
  if (!exists(context, device)) return context.model;
  const runtime::DeviceInfo& info = runtime::Runtime::instance().device_on(device.ordinal);
  return {info.name, info.num_sms};
}

int64_t num_sms(Device device) {
  constexpr int64_t kSmsOfH200 = 132;
  if (!exists(call_context(), device)) return kSmsOfH200;
  return runtime::Runtime::instance().device_on(device.ordinal).num_sms;
}

TargetScope::TargetScope(runtime::Target target, GpuModel model)
    : target_before_(std::exchange(call_context().target, target)),
      model_before_(std::exchange(call_context().model, std::move(model))) {}
TargetScope::~TargetScope() {
  call_context().target = target_before_;
  call_context().model = std::move(model_before_);
}

}  // namespace tessera::kernels::jit
