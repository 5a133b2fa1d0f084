// A plugin with Tessera inside: runs a kernel, on the GPU if there is one, and leaves it loaded.

#include <vector>

#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "runtime/driver/device.h"
#include "runtime/driver/memory.h"

extern "C" __attribute__((visibility("default"))) int tessera_exit_plugin_run() {
  using namespace tessera;
  dsl::Builder k("twice");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows}, {.align = 4});
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto at = k.launch({ceil_div(rows, 64)}, {.threads = 64});
  k.parallel({64}, [&](dsl::Value i) { out(at.x * 64 + i) = x(at.x * 64 + i) * 2.0f; });
  const kernels::jit::Function twice(k.finish());

  std::vector<float> host(100, 1.5f);
  std::vector<float> result(host.size());
  if (runtime::num_devices() == 0) {
    const TensorView tensors[] = {{host.data(), DType::f32, {100}},
                                  {result.data(), DType::f32, {100}}};
    twice(tensors, {}, nullptr);
  } else {
    runtime::DeviceBuffer in(0, 400);
    const runtime::DeviceBuffer doubled(0, 400);
    in.upload(host.data(), 400);
    const TensorView tensors[] = {{in.data(), DType::f32, {100}, Device::cuda(0)},
                                  {doubled.data(), DType::f32, {100}, Device::cuda(0)}};
    twice(tensors, {}, nullptr);
    doubled.download(result.data(), 400);
  }
  for (const float value : result) {
    if (value != 3.0f) return 1;
  }
  return 0;
}
