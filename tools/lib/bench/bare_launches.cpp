#include "tools/lib/bench/bare_launches.h"

#include "runtime/driver/device.h"
#include "runtime/driver/grid_barriers.h"

namespace tessera::tools {
namespace {

using Launch = kernels::jit::LaunchPlan::Launch;

runtime::cu::LaunchConfig config_of(const Launch& launch) {
  const runtime::LoadedKernel& kernel = *launch.kernel;
  runtime::cu::LaunchConfig config = kernel.hot.config;
  config.grid_x = static_cast<unsigned>(launch.grid.x);
  config.grid_y = static_cast<unsigned>(launch.grid.y);
  config.grid_z = static_cast<unsigned>(launch.grid.z);
  // The driver takes mutable attributes and does not write them.
  config.attributes = const_cast<runtime::cu::LaunchAttribute*>(kernel.attributes.data());
  config.num_attributes = static_cast<unsigned>(kernel.attributes.size());
  return config;
}

runtime::TensorMap map_of(const Launch& launch, const kernels::jit::LaunchPlan::Map& map,
                          const std::vector<int64_t>& addresses) {
  TensorView view = map.view;
  const int tensor = map.param->map->tensor;
  if (tensor != TensorMapParam::kNoTensor) {
    view.data = reinterpret_cast<void*>(addresses[static_cast<size_t>(tensor)]);
  }
  return runtime::encode_tensor_map(*launch.kernel, *map.param, view);
}

}  // namespace

BareLaunches::BareLaunches(const kernels::jit::LaunchPlan& plan, std::span<void* const> data) {
  using Source = kernels::jit::LaunchPlan::Source;
  for (const Launch& launch : plan.launches()) {
    if (launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.z == 0) continue;
    const runtime::LoadedKernel& kernel = *launch.kernel;
    const runtime::ContextScope context(*kernel.driver, kernel.device);
    Ready& ready = ready_.emplace_back();
    ready.kernel = &kernel;
    ready.config = config_of(launch);
    for (const Source& source : launch.pointers) {
      ready.values.push_back(reinterpret_cast<int64_t>(source.address(data)));
    }
    ready.values.insert(ready.values.end(), launch.values.begin(), launch.values.end());
    for (const auto& map : launch.maps) ready.maps.push_back(map_of(launch, map, ready.values));
    if (kernel.hot.cooperative) ready.barrier = kernel.barriers->of(nullptr);
  }
  for (Ready& ready : ready_) {
    for (int64_t& value : ready.values) ready.arguments.push_back(&value);
    for (runtime::TensorMap& map : ready.maps) ready.arguments.push_back(&map);
    if (ready.kernel->hot.cooperative) ready.arguments.push_back(&ready.barrier);
  }
}

void BareLaunches::operator()() {
  for (Ready& ready : ready_) {
    const runtime::LoadedKernel& kernel = *ready.kernel;
    kernel.driver->check(
        kernel.hot.launch_kernel_ex(&ready.config,
                                    reinterpret_cast<runtime::cu::Function>(kernel.hot.handle),
                                    ready.arguments.data(), nullptr),
        "cuLaunchKernelEx", kernel.image->op);
  }
}

}  // namespace tessera::tools
