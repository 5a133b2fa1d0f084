// The runtime alone, for CUDA that somebody has written by hand.
#include <tessera/dsl/base/error.h>
#include <tessera/runtime/dlpack.h>
#include <tessera/runtime/driver/device.h>
#include <tessera/runtime/options.h>
#include <tessera/runtime/runtime.h>

#include <cstdio>
#include <string>

int main() {
  tessera::runtime::Runtime::configure(
      [](tessera::runtime::Options& options) { options.jobs = 1; });
  int64_t shape[] = {2};
  tessera::runtime::DlTensor tensor = {shape, 1, 0, 1, 99, 32, 1, shape, nullptr, 0};
  try {
    tessera::runtime::view_of(tensor, "x");
  } catch (const tessera::Error& error) {
    std::printf("%d GPUs; %s\n", tessera::runtime::num_devices(), error.argument().c_str());
    return tessera::runtime::Runtime::instance().options().jobs == 1 ? 0 : 1;
  }
  return 1;
}
