#include "tests/support/ops/golden_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>

#include "dsl/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/ops/golden.h"
#include "tests/support/ops/run_op.h"

namespace tessera::test {

GoldenReport run_golden(const std::filesystem::path& folder, Device device) {
  GoldenReport report;
  for (const std::string& family : golden_families(folder)) {
    for (const GoldenCase& golden : read_golden(folder, family)) {
      if (!op_exists(golden.op)) {
        report.missing_ops.insert(golden.op);
        continue;
      }
      report.passed.try_emplace(golden.op, 0);
      try {
        const HostTensors got = op_runner(golden.op, device)(golden.inputs, golden.params);
        const Comparison result = compare_golden(golden, got, !device.is_cuda());
        if (result.ok) {
          ++report.passed[golden.op];
        } else {
          report.failures.push_back(golden.id + ": " + result.report);
        }
      } catch (const Error& error) {
        const bool unsupported = error.kind() == ErrorKind::unsupported;
        (unsupported ? report.unsupported : report.failures)
            .push_back(golden.id + ": " + error.what());
      } catch (const std::exception& error) {
        report.failures.push_back(golden.id + ": " + error.what());
      }
    }
  }
  return report;
}

void check_report(const GoldenReport& report) {
  CHECK_FALSE(report.passed.empty());
  for (const auto& [op, passed] : report.passed) {
    INFO(op << " passes no case at all");
    CHECK(passed > 0);
  }
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
}

void check_complete(const GoldenReport& report) {
  check_report(report);
  for (const std::string& op : report.missing_ops) FAIL_CHECK("no op " + op);
  for (const std::string& unsupported : report.unsupported) FAIL_CHECK(unsupported);
}

std::string to_string(const GoldenReport& report) {
  int total = 0;
  for (const auto& [op, passed] : report.passed) total += passed;
  std::string text = fmt::format("golden: {} passed, {} failed, {} not yet supported\n", total,
                                 report.failures.size(), report.unsupported.size());
  if (!report.missing_ops.empty()) {
    text += fmt::format("ops still missing: {}\n", fmt::join(report.missing_ops, ", "));
  }
  for (const std::string& line : report.unsupported) {
    text += fmt::format("not yet supported: {}\n", line);
  }
  return text;
}

}  // namespace tessera::test
