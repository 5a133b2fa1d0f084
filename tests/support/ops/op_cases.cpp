#include "tests/support/ops/op_cases.h"

#include <fmt/format.h>

#include <exception>

#include "dsl/base/error.h"
#include "kernels/value_check.h"

namespace tessera::test {
namespace {

Comparison compare(const TensorView& got, const TensorView& want, const std::string& output,
                   const OpCase& test) {
  const auto own = test.tolerances.find(output);
  const bool has_own = own != test.tolerances.end();
  if (test.quantised && !has_own) return compare_quantised(got, want);
  const std::optional<Tolerance> tolerance =
      has_own ? std::optional<Tolerance>(own->second) : test.tolerance;
  if (!tolerance) return compare_bits(got, want);
  if (tolerance->calc_diff > 0) return compare_calc_diff(got, want, tolerance->calc_diff);
  return compare_close(got, want, tolerance->rtol, tolerance->atol);
}

}  // namespace

Comparison compare_with_reference(const std::string& op, const OpCase& test,
                                  const reference::Runner& got) {
  const HostTensors want = reference::runner(op)(test.inputs, test.params);
  const HostTensors outputs = got(test.inputs, test.params);
  if (outputs.size() != want.size()) {
    return Comparison::failed(fmt::format("{} outputs, want {}", outputs.size(), want.size()));
  }
  for (const auto& [name, tensor] : want) {
    const auto found = outputs.find(name);
    if (found == outputs.end()) return Comparison::failed("no output " + name);
    const Comparison result = compare(found->second.view(), tensor.view(), name, test);
    if (!result.ok) return Comparison::failed(name + ": " + result.report);
  }
  return {};
}

CaseReport run_cases(const std::string& op, const std::vector<OpCase>& cases,
                     const reference::Runner& got) {
  const kernels::UncheckedValues as_on_a_gpu;  // some cases show what becomes of bad values
  CaseReport report;
  for (const OpCase& test : cases) {
    try {
      const Comparison result = compare_with_reference(op, test, got);
      if (result.ok) {
        ++report.passed;
      } else {
        report.failures.push_back(test.label + ": " + result.report);
      }
    } catch (const Error& error) {
      const bool allowed = test.may_be_unsupported && error.kind() == ErrorKind::unsupported;
      (allowed ? report.unsupported : report.failures).push_back(test.label + ": " + error.what());
    } catch (const std::exception& error) {
      report.failures.push_back(test.label + ": " + error.what());
    }
  }
  return report;
}

}  // namespace tessera::test
