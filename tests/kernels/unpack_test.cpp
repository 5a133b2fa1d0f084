// unpack_from_e2m1fn_x2 on the executor: the reference, a worked example, mistakes that the cases must
// catch, and what bad calls are told.

#include <cmath>

#include "kernels/op.h"
#include "tests/reference/ops.h"
#include "tests/support/catch.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

TEST_CASE("unpack_from_e2m1fn_x2 equals its reference on the executor", "[unpack]") {
  const auto cases = unpack_from_e2m1fn_x2_cases();
  const CaseReport report =
      run_cases("unpack_from_e2m1fn_x2", cases, op_runner("unpack_from_e2m1fn_x2", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("unpack_from_e2m1fn_x2 takes the low nibble first and keeps -0", "[unpack]") {
  HostTensor x(DType::u8, {1});
  x.set_bits(0, 0x87);  // 6, then -0
  const HostTensors made =
      run_op(kernels::find_op("unpack_from_e2m1fn_x2"), {{"x", x}}, {}, Device::cpu());
  const HostTensor& out = made.at("out");
  CHECK(out.dtype() == DType::f32);
  CHECK(out.value(0) == 6.0);
  CHECK(out.bits(1) == 0x80000000);
}

TEST_CASE("the unpack_from_e2m1fn_x2 tests catch a lost -0", "[unpack][mutants]") {
  const std::string op = "unpack_from_e2m1fn_x2";
  CHECK(is_caught(op, cases_of(op), spoiled(op, [](const HostTensors&, HostTensors& outputs) {
                    HostTensor& out = outputs.at("out");
                    for (int64_t i = 0; i < out.size(); ++i) {
                      if (out.value(i) == 0) out.set_value(i, 0);
                    }
                  })));
}

TEST_CASE("unpack_from_e2m1fn_x2 explains wrong arguments", "[unpack][errors]") {
  const auto told = [](const HostTensor& x) {
    return outputs_error("unpack_from_e2m1fn_x2", {{"x", x}}, {});
  };
  CHECK(told(HostTensor(DType::u8, {3})) == "no error");
  CHECK(told(HostTensor(DType::e4m3, {3})) ==
        "tessera: unpack_from_e2m1fn_x2: argument 'x' has the wrong dtype\n"
        "  expected  i8|u8\n"
        "  got       e4m3[3] on cpu");
  CHECK(told(HostTensor(DType::u8, {})).find("argument 'x' has the wrong rank") !=
        std::string::npos);
  CHECK(run_error("unpack_from_e2m1fn_x2", {{"x", {nullptr, DType::u8, {40'000, 40'000}}}}, {})
            .starts_with("tessera: unpack_from_e2m1fn_x2: argument 'x' beyond this limit is not "
                         "supported\n"
                         "  expected  T * W <= 1000000000\n"));
}
