// Every golden case whose op exists, on the GPU.

#include <iostream>

#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/ops/golden_run.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("golden cases on the GPU", "[golden][gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const GoldenReport report = run_golden(Device::cuda(0));
  if (!report.skipped.empty()) TESSERA_SKIP(report.skipped);
  std::cout << to_string(report);
  CHECK_FALSE(report.passed.empty());
  for (const auto& [op, passed] : report.passed) {
    INFO(op << " passes no case at all");
    CHECK(passed > 0);
  }
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
}
