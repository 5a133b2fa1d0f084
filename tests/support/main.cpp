// The program of every test binary: Catch2's, plus the reasons of skipped tests. With
// TESSERA_TEST_ON=gpu it does nothing on a machine without a GPU.

#define CATCH_CONFIG_RUNNER
#include <cstdlib>
#include <iostream>
#include <vector>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/run_kernel.h"

namespace tessera::test {
namespace {

std::vector<std::string>& skips() {
  static std::vector<std::string> reasons;
  return reasons;
}

}  // namespace

void note_skip(const std::string& reason) {
  skips().push_back(reason);
}

}  // namespace tessera::test

int main(int argc, char** argv) {
  const char* device = std::getenv("TESSERA_TEST_ON");
  if (device && std::string(device) == "gpu" && !tessera::test::why_no_gpu().empty()) {
    std::cout << "SKIPPED: " << tessera::test::why_no_gpu() << "\n";
    return 0;
  }
  tessera::codegen::verify_passes(true);
  const int result = Catch::Session().run(argc, argv);
  std::cout << tessera::test::compared_programs();
  if (result == 0) {
    for (const std::string& reason : tessera::test::skips())
      std::cout << "SKIPPED: " << reason << "\n";
  }
  return result;
}
