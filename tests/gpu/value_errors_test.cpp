// Values that break a caller's promise, on the GPU: the op does the safe thing, and whoever asks is
// told.

#include "kernels/checks/value_check.h"
#include "kernels/jit/jit.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/ops/promise_cases.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("values out of range are reported on the GPU", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const Device gpu = Device::cuda(0);
  for (const PromiseCase& test : promise_cases()) {
    if (!test.is_reported) continue;  // it leaves a row unwritten
    DYNAMIC_SECTION(test.op << ": " << test.label) {
      const kernels::OpInfo& op = kernels::find_op(test.op);
      kernels::jit::take_value_errors(gpu, nullptr);  // those of other tests
      const HostTensors outputs = run_op(op, test.inputs, test.params, gpu);
      CHECK(kernels::jit::take_value_errors(gpu, nullptr) == test.reports());
      CHECK(kernels::jit::take_value_errors(gpu, nullptr).empty());
      const kernels::UncheckedValues unchecked;
      for (const auto& [name, want] : run_op(op, test.inputs, test.params, Device::cpu())) {
        CAPTURE(name);
        CHECK(outputs.at(name).raw() == want.raw());
      }
    }
  }
}
