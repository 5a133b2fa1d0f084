#include "kernels/jit/launch_plan.h"

#include <array>

#include "dsl/base/error.h"
#include "kernels/jit/ready_kernel.h"
#include "runtime/tensor_map.h"

namespace tessera::kernels::jit {

// Kernels have a parameter per tensor and value, not one struct of all: only a pointer that is a
// parameter can be __restrict__, and the text reads like its declaration.
void LaunchPlan::operator()(std::span<void* const> data, Stream stream) const {
  TESSERA_CHECK(data.size() == num_tensors_, "a launch plan got another number of addresses");
  std::array<void*, kMaxArguments> addresses;
  std::array<void*, kMaxArguments> arguments;
  for (const Launch& launch : launches_) {
    const size_t num_pointers = launch.pointers.size();
    for (size_t i = 0; i < num_pointers; ++i) {
      addresses[i] = launch.pointers[i].address(data);
      arguments[i] = &addresses[i];
    }
    for (size_t i = 0; i < launch.values.size(); ++i) {
      // The driver takes pointers to mutable values and does not write them.
      arguments[num_pointers + i] = const_cast<int64_t*>(&launch.values[i]);
    }
    const size_t num_others = num_pointers + launch.values.size();
    std::array<runtime::TensorMap, kMaxMaps> maps;
    for (size_t i = 0; i < launch.maps.size(); ++i) {
      const Map& map = launch.maps[i];
      TensorView view = map.view;
      const int tensor = map.param->map->tensor;
      if (tensor != TensorMapParam::kNoTensor) view.data = addresses[static_cast<size_t>(tensor)];
      maps[i] = runtime::encode_tensor_map(*launch.kernel, *map.param, view);
      arguments[num_others + i] = &maps[i];
    }
    runtime::launch(*launch.kernel, launch.grid, arguments.data(), stream, launch.streamed);
  }
}

}  // namespace tessera::kernels::jit
