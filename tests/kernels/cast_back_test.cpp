// cast_back on the executor: the reference, then what bad calls are told.

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("cast_back gives the reference's bytes on the executor", "[cast_back][slow]") {
  const auto cases = cast_back_cases();
  const CaseReport report = run_cases("cast_back", cases, op_runner("cast_back", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("cast_back divides no column by the block size where a vector shares a scale",
          "[cast_back]") {
  const kernels::OpInfo& op = kernels::find_op("cast_back");
  const HostTensor x(DType::e4m3, {130, 576}), x_sf(DType::f32, {2, 5}),
      out(DType::bf16, {130, 576});
  const auto lowered =
      op.kernels({{"x", x.view()}, {"x_sf", x_sf.view()}, {"out", out.view()}},
                 kernels::check_params(op, {{"x_block_size", std::vector<int64_t>{128, 128}}}));
  REQUIRE(lowered.size() == 1);
  const std::string text = cuda_text(lowered.front());
  CHECK(count(text, "x_sf[") == 1);
  CHECK(count(text, "lane) / 128") == 0);
}

TEST_CASE("cast_back explains wrong arguments", "[cast_back][errors]") {
  const auto told = [](const HostTensor& x, const HostTensor& x_sf, std::vector<int64_t> block,
                       const std::string& layout) {
    return outputs_error("cast_back", {{"x", x}, {"x_sf", x_sf}},
                         {{"x_block_size", std::move(block)}, {"x_sf_layout", layout}});
  };
  const HostTensor x(DType::e4m3, {5, 128}), x_sf(DType::f32, {5, 2});
  CHECK(told(x, x_sf, {1, 64}, "row_major") == "no error");
  CHECK(told(x, x_sf, {64}, "row_major") ==
        "tessera: cast_back: parameter 'x_block_size' has a wrong value\n"
        "  expected  rows,columns, each from 1 to 2^30\n"
        "  got       64");
  CHECK(told(x, x_sf, {1, 0}, "row_major") ==
        "tessera: cast_back: parameter 'x_block_size' has a wrong value\n"
        "  expected  rows,columns, each from 1 to 2^30\n"
        "  got       1,0");
  CHECK(told(x, x_sf, {1, 64}, "col_major_tma") ==
        "tessera: cast_back: argument 'x_sf' has the wrong strides\n"
        "  expected  first stride 1\n"
        "  got       f32[5, 2], strides [2, 1] on cpu");
  CHECK(told(x, x_sf, {1, 64}, "packed_ue8m0") ==
        "tessera: cast_back: argument 'x_sf' has the wrong dtype\n"
        "  expected  i32\n"
        "  got       f32[5, 2] on cpu");
  CHECK(told(x, x_sf, {2, 64}, "row_major") ==
        "tessera: cast_back: argument 'x_sf' has the wrong shape\n"
        "  expected  f32[3, 2]   (rows of x_sf = 3 = ceil(T / 2); columns of x_sf = 2 = ceil(H / "
        "64))\n"
        "  got       f32[5, 2] on cpu");
  CHECK(told(HostTensor(DType::e4m3, {5, 100}), x_sf, {1, 64}, "row_major") ==
        "tessera: cast_back: argument 'x' has the wrong shape\n"
        "  expected  H % 64 = 0\n"
        "  got       H = 100 from x dim 1");
  CHECK(told(HostTensor(DType::bf16, {5, 128}), x_sf, {1, 64}, "row_major") ==
        "tessera: cast_back: argument 'x' has the wrong dtype\n"
        "  expected  e4m3|i8\n"
        "  got       bf16[5, 128] on cpu");
}
