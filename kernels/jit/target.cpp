#include "kernels/jit/target.h"

#include "dsl/base/error.h"
#include "kernels/jit/prepared.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {
namespace {

thread_local runtime::Target scope_target = {9, 0, 0};

int cluster_limit(runtime::Target target) {
  if (target.major < 9) return 1;
  return target.major <= 10 ? 16 : 8;
}

runtime::Target target_of(Device device) {
  const bool exists = device.is_cuda() && call_mode().until != CallMode::Until::named;
  return exists ? runtime::Runtime::instance().target_on(device.ordinal) : scope_target;
}

}  // namespace

int cluster_limit(Device device) {
  return cluster_limit(target_of(device));
}

int64_t shared_memory_limit(Device device) {
  const runtime::Target target = target_of(device);
  const bool is_small = target.major == 12 || (target.major == 8 && target.minor % 7 != 0);
  if (is_small) return 99 * 1024;
  return (target.major == 8 ? 163 : 227) * 1024;
}

bool has_group_products(Device device) {
  return target_of(device).major == 9;
}

void launch_in_clusters(Device device, const std::function<void(int limit)>& launch) {
  try {
    launch(cluster_limit(device));
  } catch (const Error& error) {
    if (error.code() != "CLUSTER_TOO_LARGE") throw;
    launch(1);
  }
}

TargetScope::TargetScope(runtime::Target target) : before_(scope_target) {
  scope_target = target;
}
TargetScope::~TargetScope() {
  scope_target = before_;
}

}  // namespace tessera::kernels::jit
