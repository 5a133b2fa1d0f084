#pragma once
// Capabilities of a call's device, for ops with several implementations.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "dsl/base/tensor_view.h"
#include "runtime/nvrtc/target.h"

namespace tessera::kernels::jit {

struct CallContext;

/// The target of the call's device. For calls on the CPU and for calls that only list their kernels, that of the
/// TargetScope if there is one, else Options::cpu_target.
runtime::Target target_of(Device device);
/// The same for a call in that context.
runtime::Target target_of(const CallContext& context, Device device);

/// The largest cluster that a kernel on this device may use: 1 below sm_90, 16 on sm_90 and sm_100, 8
/// on others. The target is chosen as for target_of.
int cluster_limit(Device device);

/// Bytes of shared memory per block on this device: 163 KiB on sm_80 and sm_87, 99 KiB on sm_86,
/// sm_89 and sm_12x, 227 KiB on the others. The target is chosen as for target_of.
int64_t shared_memory_limit(Device device);

/// True if this device has wgmma: on sm_90. The target is chosen as for target_of.
bool has_wgmma(Device device);

/// Calls `launch` with cluster_limit(device). A MIG partition may be too small for a cluster that its
/// architecture supports, which shows when the kernel is loaded (CLUSTER_TOO_LARGE). Then calls
/// `launch` again with 1.
void launch_in_clusters(Device device, const std::function<void(int limit)>& launch);

/// The name of a GPU for which tuned tile sizes are stored.
struct GpuModel {
  std::string name;  // "NVIDIA H200"; empty: no model
  int64_t num_sms = 0;

  friend bool operator==(const GpuModel&, const GpuModel&) = default;
};

/// The model of the call's device. None on the CPU; that of the TargetScope for calls that only list their
/// kernels.
GpuModel gpu_model(Device device);

/// Multiprocessors of the call's device; 132, as an H100 or H200 has, on the CPU and for calls that only list
/// their kernels.
int64_t num_sms(Device device);

/// While it lives, this thread's calls are for that target, and for that model, unless their device
/// determines them. Calls on the CPU run the program of that target.
class TargetScope {
 public:
  explicit TargetScope(runtime::Target target, GpuModel model = {});
  ~TargetScope();
  TargetScope(const TargetScope&) = delete;
  TargetScope& operator=(const TargetScope&) = delete;

 private:
  std::optional<runtime::Target> target_before_;
  GpuModel model_before_;
};

}  // namespace tessera::kernels::jit
