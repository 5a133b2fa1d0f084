#pragma once
// Kernels that the acceptance tests launch on a GPU: an op with ten tensors, and kernels with much shared
// memory.

#include <algorithm>
#include <string>
#include <vector>

#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "runtime/driver/memory.h"
#include "tests/support/ten_tensors.h"

#define REQUIRE_GPU() \
  if (tessera::runtime::num_devices() == 0) TESSERA_SKIP(tessera::runtime::why_no_device())

namespace tessera::test {

/// Ten vectors on a device: nine inputs of ones, twos, threes... and the sum.
struct Vectors {
  static constexpr int64_t kRows = 1000;

  explicit Vectors(int device) : memory(device, 10 * 4096) {
    for (int i = 0; i < 9; ++i) fill(i, static_cast<float>(i + 1));
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i] = TensorView(static_cast<char*>(memory.data()) + 4096 * i, DType::f32, {kRows},
                              Device::cuda(device));
    }
  }
  void fill(int tensor, float value) {
    const std::vector<float> values(kRows, value);
    memory.upload(values.data(), kRows * 4, tensor * 4096);
  }
  bool holds(float sum) const {
    std::vector<float> values(kRows);
    memory.download(values.data(), kRows * 4, 9 * 4096);
    return std::all_of(values.begin(), values.end(), [&](float v) { return v == sum; });
  }
  runtime::DeviceBuffer memory;
  TenTensors tensors;
};

inline const kernels::jit::Function& sum_function() {
  static const auto* function = new kernels::jit::Function(sum_of_nine());
  return *function;
}

/// out = x + 1 through that much shared memory.
inline kernels::jit::Function large_kernel(const std::string& name, int64_t kilobytes) {
  const int64_t elements = kilobytes * 256;
  dsl::Builder k(name);
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows}, {.align = 4});
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto at = k.launch({ceil_div(rows, elements)}, {.threads = 128});
  auto tile = k.shared(DType::f32, {elements});
  k.copy(x.tile({at.x * elements}, {elements}), tile);
  k.parallel({elements}, [&](dsl::Value i) { tile(i) = tile(i) + 1.0f; });
  k.copy(tile, out.tile({at.x * elements}, {elements}));
  return kernels::jit::Function(k.finish());
}

}  // namespace tessera::test
