#pragma once
// The libraries and the code identity that a Runtime uses; tests substitute fakes.

#include <functional>
#include <string>

#include "runtime/driver/driver.h"
#include "runtime/driver/shared_library.h"

namespace tessera::runtime {

struct Surroundings {
  LibraryLoader loader = system_loader();
  std::function<const Driver&()> driver = []() -> const Driver& { return runtime::driver(); };
  /// Identity of the code generator. Empty: kernels with a Spec are not stored on disk.
  std::string code_identity;
};

}  // namespace tessera::runtime
