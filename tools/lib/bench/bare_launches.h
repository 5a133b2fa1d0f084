#pragma once
// The cost of the driver alone: the launches of a plan with everything filled in before. They are
// those of the plan but for access policy windows.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/jit/launch_plan.h"
#include "runtime/driver/driver.h"
#include "runtime/launch.h"
#include "runtime/tensor_map.h"

namespace tessera::tools {

class BareLaunches {
 public:
  /// `data` holds an address for each tensor of the plan.
  BareLaunches(const kernels::jit::LaunchPlan& plan, std::span<void* const> data);
  BareLaunches(const BareLaunches&) = delete;
  BareLaunches& operator=(const BareLaunches&) = delete;

  /// Launches them in the legacy default stream of the current context. Throws driver errors.
  void operator()();

 private:
  struct Ready {
    const runtime::LoadedKernel* kernel = nullptr;
    runtime::cu::LaunchConfig config = {};
    std::vector<int64_t> values;
    std::vector<runtime::TensorMap> maps;
    runtime::cu::DevicePtr barrier = 0;  // of a cooperative kernel
    std::vector<void*> arguments;        // point to those
  };
  std::vector<Ready> ready_;
};

}  // namespace tessera::tools
