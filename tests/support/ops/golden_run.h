#pragma once
// Runs the golden folder against the op registry on one device.

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
  std::string skipped;                   // why nothing ran: no folder
};

GoldenReport run_golden(Device device);

/// Counts, then the missing ops and the unsupported cases, one a line.
std::string to_string(const GoldenReport& report);

}  // namespace tessera::test
