#include "tests/support/ops/chain.h"

#include "dsl/base/error.h"
#include "tests/reference/modeling.h"
#include "tests/support/ops/run_op.h"

namespace tessera::test {

CaseReport compare_with_chain(const std::string& op, const std::vector<OpCase>& cases,
                              Device device) {
  const std::string composition = op == "pre_big_fuse" ? "mhc_pre_fwd" : op;
  const auto part = [&](const std::string& name) { return op_runner(name, device); };
  CaseReport report;
  for (const OpCase& test : cases) {
    try {
      const HostTensors fused = op_runner(op, device)(test.inputs, test.params);
      const HostTensors chain = reference::compose(composition, test.inputs, test.params, part);
      std::string difference;
      for (const auto& [name, tensor] : fused) {
        const Comparison result = compare_bits(tensor.view(), chain.at(name).view());
        if (!result.ok) difference += name + ": " + result.report + " ";
      }
      if (difference.empty() && !fused.empty()) {
        ++report.passed;
      } else {
        report.failures.push_back(test.label + ": " + difference);
      }
    } catch (const Error& error) {
      const bool allowed = test.may_be_unsupported && error.kind() == ErrorKind::unsupported;
      (allowed ? report.unsupported : report.failures).push_back(test.label + ": " + error.what());
    }
  }
  return report;
}

}  // namespace tessera::test
