#pragma once
// The libraries and the identity that a Runtime works with; tests substitute fakes.

#include <functional>
#include <string>

#include "runtime/driver/driver.h"
#include "runtime/driver/shared_library.h"

namespace tessera::runtime {

struct Surroundings {
  LibraryLoader loader = system_loader();
  std::function<const Driver&()> driver = []() -> const Driver& { return runtime::driver(); };
  /// Identity of the code that generates kernels. Empty: kernels with a spec are not kept on disk.
  std::string code_identity;
};

}  // namespace tessera::runtime
