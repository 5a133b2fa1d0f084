#pragma once
// What the device of a call can do, for ops that have more than one way.

#include <cstdint>
#include <functional>

#include "dsl/base/tensor_view.h"
#include "runtime/nvrtc/target.h"

namespace tessera::kernels::jit {

/// The largest cluster of blocks that a kernel on this device may ask for: 1 below sm_90, 16 on sm_90
/// and sm_100, 8 on others. The executor goes to 16; while a TargetScope lives, calls on the CPU and
/// calls that only name their kernels go by its target.
int cluster_limit(Device device);

/// Bytes of shared memory that a block may have on this device: 163 KiB on sm_80 and sm_87, 99 KiB on
/// sm_86, sm_89 and sm_12x, 227 KiB on the others. Which target that is, as with cluster_limit.
int64_t shared_memory_limit(Device device);

/// Calls `launch` with cluster_limit(device). A part of a GPU may be too small for a cluster that its
/// architecture has, which shows when the kernel is loaded (CLUSTER_TOO_LARGE): then `launch` is
/// called again with 1.
void launch_in_clusters(Device device, const std::function<void(int limit)>& launch);

/// Calls of this thread are for that target while it lives, as far as the device does not say it.
class TargetScope {
 public:
  explicit TargetScope(runtime::Target target);
  ~TargetScope();
  TargetScope(const TargetScope&) = delete;
  TargetScope& operator=(const TargetScope&) = delete;

 private:
  runtime::Target before_;
};

}  // namespace tessera::kernels::jit
