#pragma once
// Calls of small kernels on a fake driver.

#include <cstdint>
#include <string>
#include <vector>

#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "runtime/runtime.h"
#include "tests/runtime/fake_process.h"

namespace tessera::test {

/// While it lives, the process's runtime is one on a fake driver.
struct OnFakes {
  OnFakes() : process(fake, runtime::Options{}) {
    runtime::Runtime::replace_instance(process.runtime.get());
  }
  ~OnFakes() { runtime::Runtime::replace_instance(nullptr); }
  FakeCuda fake;
  Process process;
};

/// A kernel of its own per test: the table of prepared kernels outlives the fakes.
inline kernels::jit::Function copy_function(const std::string& name) {
  dsl::Builder k(name);
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows}, {.align = 4});
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto at = k.launch({ceil_div(rows, 64)}, {.threads = 64});
  k.parallel({64}, [&](dsl::Value i) { out(at.x * 64 + i) = x(at.x * 64 + i); });
  return kernels::jit::Function(k.finish());
}

/// Two tensors of `rows` floats on a fake device: the input and the output of copy_function.
struct Pair {
  TensorView x, out;
  Pair(uintptr_t address, int64_t rows)
      : x(reinterpret_cast<void*>(address), DType::f32, {rows}, Device::cuda(0)),
        out(reinterpret_cast<void*>(address + 0x100000), DType::f32, {rows}, Device::cuda(0)) {}
  std::vector<TensorView> views() const { return {x, out}; }
};

}  // namespace tessera::test
