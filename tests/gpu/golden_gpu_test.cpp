// Every golden case whose op exists, on the GPU.

#include <iostream>

#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/ops/golden.h"
#include "tests/support/ops/golden_run.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("golden cases in the repository pass on the GPU", "[golden][gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const GoldenReport report = run_golden(golden_in_repository(), Device::cuda(0));
  std::cout << to_string(report);
  check_complete(report);
}

TEST_CASE("golden cases beside the repository pass on the GPU", "[golden][gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  if (const std::string reason = why_no_golden_beside(); !reason.empty()) TESSERA_SKIP(reason);
  const GoldenReport report = run_golden(golden_beside_repository(), Device::cuda(0));
  std::cout << to_string(report);
  check_report(report);
}
