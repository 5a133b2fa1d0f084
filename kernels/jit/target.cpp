#include "kernels/jit/target.h"

#include <optional>
#include <utility>

#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"
#include "kernels/jit/prepared.h"
#include "runtime/driver/device.h"
#include "runtime/options.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {
namespace {

thread_local std::optional<runtime::Target> scope_target;
thread_local GpuModel scope_model;

/// False for calls that only list their kernels, which are for a device that need not exist.
bool exists(Device device) {
  return device.is_cuda() && call_mode().until != CallMode::Until::named;
}

}  // namespace

runtime::Target target_of(Device device) {
  runtime::Runtime& runtime = runtime::Runtime::instance();
  if (exists(device)) return runtime.target_on(device.ordinal);
  return scope_target ? *scope_target : runtime::parse_target(runtime.options().cpu_target).value();
}

int cluster_limit(Device device) {
  return facts_of(target_of(device)).max_cluster;
}

int64_t shared_memory_limit(Device device) {
  return facts_of(target_of(device)).shared_memory;
}

bool has_group_products(Device device) {
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
  if (!exists(device)) return scope_model;
  const runtime::DeviceInfo& info = runtime::Runtime::instance().device_on(device.ordinal);
  return {info.name, info.num_sms};
}

int64_t num_sms(Device device) {
  constexpr int64_t kSmsOfH200 = 132;
  if (!exists(device)) return kSmsOfH200;
  return runtime::Runtime::instance().device_on(device.ordinal).num_sms;
}

TargetScope::TargetScope(runtime::Target target, GpuModel model)
    : target_before_(std::exchange(scope_target, target)),
      model_before_(std::exchange(scope_model, std::move(model))) {}
TargetScope::~TargetScope() {
  scope_target = target_before_;
  scope_model = std::move(model_before_);
}

}  // namespace tessera::kernels::jit
