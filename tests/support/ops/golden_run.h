#pragma once
// Runs the cases of a golden folder against the op registry on one device.

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "dsl/base/tensor_view.h"

namespace tessera::test {

struct GoldenReport {
  std::map<std::string, int> passed;     // cases by op, every op of the registry that has any
  std::vector<std::string> failures;     // "id: what differs"
  std::vector<std::string> unsupported;  // "id: the error that a user gets", kind unsupported only
  std::set<std::string> missing_ops;     // ops of cases that the registry does not have
};

/// Throws what read_golden throws; what the cases throw is in the report.
GoldenReport run_golden(const std::filesystem::path& folder, Device device);

/// Fails the running test for each failed case, and for each op that passes no case.
void check_report(const GoldenReport& report);

/// check_report, and fails for each case whose op is missing or does not support it.
void check_complete(const GoldenReport& report);

/// Counts, then the missing ops and the unsupported cases, one a line.
std::string to_string(const GoldenReport& report);

}  // namespace tessera::test
