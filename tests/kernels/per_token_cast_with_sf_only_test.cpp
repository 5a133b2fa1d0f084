// per_token_cast_with_sf_only on the executor: the reference, then what bad calls are told.

#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("per_token_cast_with_sf_only gives the reference's bytes on the executor",
          "[per_token_cast_with_sf_only][slow]") {
  const auto cases = per_token_cast_with_sf_only_cases();
  const CaseReport report = run_cases("per_token_cast_with_sf_only", cases,
                                      op_runner("per_token_cast_with_sf_only", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("per_token_cast_with_sf_only explains wrong arguments",
          "[per_token_cast_with_sf_only][errors]") {
  kernels::Params params = {{"format", std::string("e4m3")}, {"num_per_channels", int64_t{128}}};
  CHECK(outputs_error("per_token_cast_with_sf_only", {{"x", HostTensor(DType::e4m3, {4, 256})}},
                      params) ==
        "tessera: per_token_cast_with_sf_only: argument 'x' has the wrong dtype\n"
        "  expected  bf16|f32\n"
        "  got       e4m3[4, 256] on cpu");
  params["sf_layout"] = std::string("packed_ue8m0");
  CHECK(outputs_error("per_token_cast_with_sf_only", {{"x", HostTensor(DType::f32, {4, 256})}},
                      params) ==
        "tessera: per_token_cast_with_sf_only: argument 'sf_layout': packed_ue8m0 scales are "
        "powers of two\n"
        "  expected  round_sf where sf_layout = packed_ue8m0\n"
        "  got       round_sf = false, sf_layout = packed_ue8m0");
}
