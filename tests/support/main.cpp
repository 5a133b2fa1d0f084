// The program of every test binary: Catch2's, plus the reasons of skipped tests.

#define CATCH_CONFIG_RUNNER
#include <iostream>
#include <vector>

#include "tests/support/catch.h"

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
  const int result = Catch::Session().run(argc, argv);
  if (result == 0) {
    for (const std::string& reason : tessera::test::skips())
      std::cout << "SKIPPED: " << reason << "\n";
  }
  return result;
}
