#pragma once
// Calls of ops on a fake GPU.

#include <utility>

#include "kernels/jit/tune.h"
#include "tests/runtime/fake_process.h"

namespace tessera {

/// The process's runtime has these options while it lives.
struct OnFakes {
  explicit OnFakes(runtime::Options options) : process(fake, std::move(options)) {
    runtime::Runtime::replace_instance(process.runtime.get());
    kernels::jit::reload_tuned();
  }
  ~OnFakes() {
    runtime::Runtime::replace_instance(nullptr);
    kernels::jit::reload_tuned();
  }
  test::FakeCuda fake;
  test::Process process;
};

}  // namespace tessera
