#include "tests/support/ops/op_cases.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "dsl/base/error.h"
#include "kernels/checks/value_check.h"

namespace tessera::test {
namespace {

Comparison compare_elements(const TensorView& got, const TensorView& want,
                            const CompareRule& rule) {
  if (rule.quantised) return compare_quantised(got, want);
  if (!rule.tolerance) return compare_bits(got, want);
  const auto [rtol, atol, calc_diff] = *rule.tolerance;
  if (calc_diff > 0) return compare_calc_diff(got, want, calc_diff);
  return compare_close(got, want, rtol, atol);
}

Comparison compare(const TensorView& got, const TensorView& want, const CompareRule& rule) {
  const Comparison result = compare_elements(got, want, rule);
  if (!result.ok || want.size() == 0 || got.strides == want.strides) return result;
  return Comparison::failed(fmt::format("got strides {}, want strides {}", to_string(got.strides),
                                        to_string(want.strides)));
}

}  // namespace

OpCase strided(OpCase test, const std::string& tensor, const Dims& strides) {
  const HostTensor old = test.inputs.at(tensor);
  HostTensor placed(old.dtype(), old.shape(), strides);
  for (int64_t i = 0; i < old.size(); ++i) placed.set_bits(i, old.bits(i));
  test.label += fmt::format(" {} strides {}", tensor, to_string(strides));
  test.inputs[tensor] = std::move(placed);
  return test;
}

CompareRule compare_rule(const OpCase& test, const std::string& output) {
  const auto own = test.tolerances.find(output);
  if (own != test.tolerances.end()) return {.tolerance = own->second};
  return {.quantised = test.quantised, .tolerance = test.tolerance};
}

Comparison compare_outputs(const OpCase& test, const HostTensors& want, const HostTensors& got) {
  if (got.size() != want.size()) {
    return Comparison::failed(fmt::format("{} outputs, want {}", got.size(), want.size()));
  }
  for (const auto& [name, tensor] : want) {
    const auto found = got.find(name);
    if (found == got.end()) return Comparison::failed("no output " + name);
    const Comparison result =
        compare(found->second.view(), tensor.view(), compare_rule(test, name));
    if (!result.ok) return Comparison::failed(name + ": " + result.report);
  }
  return {};
}

Comparison compare_with_reference(const std::string& op, const OpCase& test,
                                  const reference::Runner& got) {
  const HostTensors want = reference::runner(op)(test.inputs, test.params);
  return compare_outputs(test, want, got(test.inputs, test.params));
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
