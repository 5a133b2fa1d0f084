// cast_back on the executor: the reference, then what bad calls are told.

#include <limits>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/run_kernel.h"
#include "tests/support/tensor_of.h"

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

TEST_CASE("exponent bytes 0 and 255 are read as 0 and infinity by every op", "[cast_back]") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double scales[] = {0, 128, 0x1p127, infinity};
  const HostTensor x_sf = tensor_of(DType::i32, {1, 1}, {double(int32_t(0xFFFE8600))});
  const kernels::Params packed = {{"x_sf_layout", std::string("packed_ue8m0")},
                                  {"out_dtype", std::string("f32")}};
  const auto with = [&](kernels::Params more) {
    more.insert(packed.begin(), packed.end());
    return more;
  };
  const auto check = [&](const char* op, const HostTensor& x, const kernels::Params& params) {
    CAPTURE(op);
    const HostTensor out =
        op_runner(op, Device::cpu())({{"x", x}, {"x_sf", x_sf}}, params).at("out");
    for (int64_t g = 0; g < 4; ++g) CHECK(out.value(g * out.size() / 4) == scales[g]);
  };
  const HostTensor ones = tensor_of(DType::e4m3, {1, 512}, {1});
  check("per_token_cast_back", ones, with({{"num_per_channels", int64_t{128}}}));
  check("cast_back", ones, with({{"x_block_size", std::vector<int64_t>{1, 128}}}));
  const HostTensors coded = op_runner("per_token_cast_to_e5m6", Device::cpu())(
      {{"x", tensor_of(DType::f32, {1, 64}, {65024})}}, {{"round_sf", true}});
  REQUIRE(coded.at("out_sf").value(0) == 1);
  const HostTensor back = op_runner("cast_back_e5m6", Device::cpu())(
                              {{"x", coded.at("out")}, {"x_sf", x_sf}},
                              with({{"x_block_size", std::vector<int64_t>{1, 16}}}))
                              .at("out");
  for (int64_t g = 0; g < 4; ++g) CHECK(back.value(16 * g) == float(65024 * scales[g]));
  // A quantised x: the new scale is that of a row of zeros, of 128, 2^127 and infinity.
  const HostTensors cast = op_runner("per_token_cast", Device::cpu())(
      {{"x", ones}, {"x_sf", x_sf}}, {{"format", std::string("e4m3")},
                                      {"num_per_channels", int64_t{128}},
                                      {"x_block_size", std::vector<int64_t>{1, 128}},
                                      {"x_sf_layout", std::string("packed_ue8m0")}});
  const double largest[] = {1e-4, 128, 0x1p127, infinity};
  for (int64_t g = 0; g < 4; ++g) {
    CHECK(cast.at("out_sf").value(g) == float(float(largest[g]) / 448.0F));
  }
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
