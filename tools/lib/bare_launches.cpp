#include "tools/lib/bare_launches.h"

#include "runtime/driver/device.h"
#include "runtime/launch.h"

namespace tessera::tools {

BareLaunches::BareLaunches(const kernels::jit::LaunchPlan& plan, std::span<void* const> data) {
  using Source = kernels::jit::LaunchPlan::Source;
  for (const auto& launch : plan.launches()) {
    auto& ready = ready_.emplace_back();
    for (const Source& source : launch.pointers) {
      char* base = source.tensor < 0 ? nullptr
                                     : static_cast<char*>(data[static_cast<size_t>(source.tensor)]);
      ready.values.push_back(reinterpret_cast<int64_t>(base + source.offset));
    }
    ready.values.insert(ready.values.end(), launch.values.begin(), launch.values.end());
    ready.function = reinterpret_cast<runtime::cu::Function>(launch.kernel->hot.handle);
    ready.config.grid_x = static_cast<unsigned>(launch.grid.x);
    ready.config.grid_y = static_cast<unsigned>(launch.grid.y);
    ready.config.grid_z = static_cast<unsigned>(launch.grid.z);
    ready.config.block_x = static_cast<unsigned>(launch.kernel->image->threads);
    ready.config.block_y = ready.config.block_z = 1;
    ready.config.shared_bytes = static_cast<unsigned>(launch.kernel->image->shared_bytes);
  }
  for (Ready& ready : ready_) {
    for (int64_t& value : ready.values) ready.arguments.push_back(&value);
  }
}

void BareLaunches::operator()() {
  for (Ready& ready : ready_) {
    runtime::driver().check(runtime::driver().call.launch_kernel_ex(
                                &ready.config, ready.function, ready.arguments.data(), nullptr),
                            "cuLaunchKernelEx");
  }
}

}  // namespace tessera::tools
