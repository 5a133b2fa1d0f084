#include "kernels/views/dry_call.h"

#include <cstdint>
#include <string>

namespace tessera::kernels {

Tensors views_of(const BenchCase& example) {
  Tensors views;
  for (const BenchCase::Input& input : example.inputs) {
    const Dims strides =
        input.strides.rank == input.shape.rank ? input.strides : row_major_strides(input.shape);
    views[input.name] = TensorView(nullptr, input.dtype, input.shape, strides, Device::cpu());
  }
  return views;
}

Tensors views_with_outputs(const OpInfo& op, const Tensors& inputs, const Params& params) {
  Tensors views = inputs;
  for (const OutputInfo& output : op.outputs(inputs, params)) {
    views.emplace(output.name,
                  TensorView(nullptr, output.dtype, output.shape, output.strides, Device::cpu()));
  }
  return views;
}

Tensors placed_nowhere(Tensors views, Device device) {
  uintptr_t address = uintptr_t{1} << 40;
  for (auto& [name, view] : views) {
    view.device = device;
    view.data = reinterpret_cast<void*>(address);
    address += uintptr_t{1} << 40;
  }
  return views;
}

}  // namespace tessera::kernels
