// Work on several threads, also where the system gives fewer.

#include "runtime/parallel.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace tessera::runtime;

namespace {

rlim_t address_space() {
  std::ifstream facts("/proc/self/statm");
  rlim_t pages = 0;
  facts >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("where threads cannot be had, those that are there do the work") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  TESSERA_SKIP("sanitizers need their address space");
#endif
  constexpr size_t kCount = 500;
  std::vector<std::atomic<int>> runs(kCount);
  struct rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  // Room for the stacks of a few threads, not for 255.
  const struct rlimit tight = {address_space() + (rlim_t{64} << 20), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
  std::string error;
  try {
    run_in_parallel(kCount, 256, {}, [&](size_t i) { ++runs[i]; });
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  setrlimit(RLIMIT_AS, &before);
  CHECK(error.empty());
  for (const auto& count : runs) REQUIRE(count == 1);
}
