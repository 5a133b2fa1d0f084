#pragma once
// The recorded cases of a golden folder: <family>.json names the cases, <family>.safetensors holds
// their tensors. A small folder is in the repository, a larger one may lie beside it.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/call_types.h"
#include "tests/support/compare.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

/// How one output of a case is compared.
struct GoldenRule {
  enum class Kind : uint8_t { bitwise, calc_diff, allclose, sorted_rows, quantised, property };
  Kind kind = Kind::bitwise;
  double limit = 0, rtol = 0, atol = 0;
  std::string text;  // property: what must hold
  std::optional<std::vector<int64_t>>
      rows;                          // property: the rows that are compared, all when absent
  std::optional<int64_t> row_bytes;  // property: the bytes of each row that are compared
};

struct GoldenCase {
  std::string id, op;
  kernels::Params params;
  HostTensors inputs, outputs;
  std::map<std::string, GoldenRule> rules;      // by output
  std::map<std::string, GoldenRule> cpu_rules;  // where the executor is compared otherwise
};

/// tests/golden/recorded: the smallest case of every op that has one, in every clone.
std::filesystem::path golden_in_repository();

/// TESSERA_GOLDEN_DIR, else ../shared/golden seen from the source root. It may be missing.
std::filesystem::path golden_beside_repository();

/// Why the folder beside the repository cannot be read, in one line; empty if it is there.
std::string why_no_golden_beside();

/// The families of a folder (its *.json), sorted.
std::vector<std::string> golden_families(const std::filesystem::path& folder);

/// Throws Error if a file is damaged or says something this reader does not know.
std::vector<GoldenCase> read_golden(const std::filesystem::path& folder, const std::string& family);

/// Compares every output of a case; `on_cpu` picks the executor's rules. Outputs missing or too
/// many fail. A property without rows or bytes to compare, which only its text describes, is
/// reported as a failure.
Comparison compare_golden(const GoldenCase& golden, const HostTensors& got, bool on_cpu);

}  // namespace tessera::test
