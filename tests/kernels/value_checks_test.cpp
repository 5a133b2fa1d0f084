// Values that break a promise: CPU calls are told, by the name of the tensor; without the checks they
// do what a GPU does.

#include "kernels/jit/jit.h"
#include "kernels/op.h"
#include "kernels/value_check.h"
#include "tests/support/catch.h"
#include "tests/support/ops/promise_cases.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("a CPU call is told of values out of range", "[kernels][values]") {
  for (const PromiseCase& test : promise_cases()) {
    DYNAMIC_SECTION(test.op << ": " << test.label) {
      std::string told;
      try {
        run_op(kernels::find_op(test.op), test.inputs, test.params, Device::cpu());
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::argument);
        told = error.what();
      }
      CHECK(told == test.refusal);
    }
  }
}

TEST_CASE("without the checks a CPU call goes through, and its kernels report what they see",
          "[kernels][values]") {
  const kernels::UncheckedValues unchecked;
  for (const PromiseCase& test : promise_cases()) {
    DYNAMIC_SECTION(test.op << ": " << test.label) {
      kernels::jit::take_value_errors(Device::cpu(), nullptr);  // those of other tests
      run_op(kernels::find_op(test.op), test.inputs, test.params, Device::cpu());
      CHECK(kernels::jit::take_value_errors(Device::cpu(), nullptr) == test.reports());
      CHECK(kernels::jit::take_value_errors(Device::cpu(), nullptr).empty());
    }
  }
}
