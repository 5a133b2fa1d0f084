// per_token_cast_with_precomputed_sf on the executor: the reference, then what bad calls are told.

#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("per_token_cast_with_precomputed_sf gives the reference's bytes on the executor",
          "[per_token_cast_with_precomputed_sf]") {
  const auto cases = per_token_cast_with_precomputed_sf_cases();
  const CaseReport report =
      run_cases("per_token_cast_with_precomputed_sf", cases,
                op_runner("per_token_cast_with_precomputed_sf", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("per_token_cast_with_precomputed_sf explains wrong scales",
          "[per_token_cast_with_precomputed_sf][errors]") {
  const kernels::Params params = {{"format", std::string("e4m3")},
                                  {"num_per_channels", int64_t{128}}};
  const HostTensor x(DType::f32, {4, 320});
  const auto told = [&](HostTensor sf) {
    return outputs_error("per_token_cast_with_precomputed_sf", {{"x", x}, {"sf", std::move(sf)}},
                         params);
  };
  CHECK(told(HostTensor(DType::f32, {4, 3}, {5, 1})) == "no error");
  CHECK(told(HostTensor(DType::f32, {4, 3}, {1, 4})) ==
        "tessera: per_token_cast_with_precomputed_sf: argument 'sf' has the wrong strides\n"
        "  expected  last stride 1\n"
        "  got       f32[4, 3], strides [1, 4] on cpu");
  CHECK(told(HostTensor(DType::i32, {4, 1})) ==
        "tessera: per_token_cast_with_precomputed_sf: argument 'sf' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       i32[4, 1] on cpu");
  CHECK(told(HostTensor(DType::f32, {4, 2})) ==
        "tessera: per_token_cast_with_precomputed_sf: argument 'sf' has the wrong shape\n"
        "  expected  f32[4, 3]   (T = 4 from x dim 0; C = 3 = ceil(H / num_per_channels))\n"
        "  got       f32[4, 2] on cpu");
}
