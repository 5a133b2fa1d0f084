// per_token_cast_back on the executor: the reference, then what bad calls are told.

#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("per_token_cast_back gives the reference's bytes on the executor",
          "[per_token_cast_back][slow]") {
  const auto cases = per_token_cast_back_cases();
  const CaseReport report =
      run_cases("per_token_cast_back", cases, op_runner("per_token_cast_back", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("per_token_cast_back of no columns is nothing", "[per_token_cast_back]") {
  const HostTensor x(DType::e4m3, {5, 0}), x_sf(DType::f32, {5, 0});
  CHECK(outputs_error("per_token_cast_back", {{"x", x}, {"x_sf", x_sf}},
                      {{"num_per_channels", int64_t{1}}}) == "no error");
}

TEST_CASE("per_token_cast_back explains a wrong num_per_channels",
          "[per_token_cast_back][errors]") {
  const HostTensor x(DType::e4m3, {5, 128}), x_sf(DType::f32, {5, 1});
  const auto told = [&](int64_t group) {
    return outputs_error("per_token_cast_back", {{"x", x}, {"x_sf", x_sf}},
                         {{"num_per_channels", group}});
  };
  CHECK(told(128) == "no error");
  CHECK(told(129) ==
        "tessera: per_token_cast_back: parameter 'num_per_channels' is out of range\n"
        "  expected  1 .. 128\n"
        "  got       129");
  CHECK(told(0) ==
        "tessera: per_token_cast_back: parameter 'num_per_channels' has a wrong value\n"
        "  expected  int 1..H\n"
        "  got       0");
  CHECK(told(64) ==
        "tessera: per_token_cast_back: argument 'x_sf' has the wrong shape\n"
        "  expected  f32[5, 2]   (T = 5 from x dim 0; columns of x_sf = 2 = ceil(H / 64))\n"
        "  got       f32[5, 1] on cpu");
}
