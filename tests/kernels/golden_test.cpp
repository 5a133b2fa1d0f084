// Every golden case whose op exists, on the executor with traps on.

#include <iostream>

#include "tests/support/catch.h"
#include "tests/support/ops/golden_run.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("golden cases on the executor", "[golden]") {
  const GoldenReport report = run_golden(Device::cpu());
  if (!report.skipped.empty()) TESSERA_SKIP(report.skipped);
  std::cout << to_string(report);
  CHECK_FALSE(report.passed.empty());
  for (const auto& [op, passed] : report.passed) {
    INFO(op << " passes no case at all");
    CHECK(passed > 0);
  }
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
}
