#pragma once
// What the driver alone costs: the launches of a plan with everything filled in before.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/jit/launch_plan.h"
#include "runtime/driver/driver.h"

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
    std::vector<int64_t> values;
    std::vector<void*> arguments;
    runtime::cu::LaunchConfig config = {};
    runtime::cu::Function function = nullptr;
  };
  std::vector<Ready> ready_;
};

}  // namespace tessera::tools
