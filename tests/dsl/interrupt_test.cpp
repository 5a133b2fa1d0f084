#include "dsl/base/interrupt.h"

#include <chrono>
#include <thread>

#include "tests/support/catch.h"

using tessera::InterruptScope;
using tessera::is_interrupted;

namespace {

bool becomes_interrupted() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < end) {
    if (is_interrupted()) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("work asks now and then whether it is over, and is told once", "[interrupt]") {
  CHECK_FALSE(is_interrupted());
  int questions = 0;
  {
    const InterruptScope scope([&] { return ++questions == 3; });
    CHECK_FALSE(is_interrupted());  // not asked yet
    CHECK(becomes_interrupted());
    CHECK(questions == 3);
    CHECK(is_interrupted());
    CHECK(questions == 3);
    std::thread([] { CHECK_FALSE(is_interrupted()); }).join();  // another thread's work goes on
  }
  CHECK_FALSE(is_interrupted());
}
