// per_token_cast on the executor: the reference, then what bad calls are told.

#include "kernels/ops.h"
#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

namespace {

HostTensor x_of(Dims shape) {
  return random_tensor(DType::bf16, shape, Values::normal, 1);
}

kernels::Params with(const std::string& name, const kernels::ParamValue& value) {
  kernels::Params params = {{"format", std::string("e4m3")}, {"num_per_channels", int64_t{128}}};
  params[name] = value;
  return params;
}
const kernels::Params kGroupsOf128 = with("num_per_channels", int64_t{128});

}  // namespace

TEST_CASE("per_token_cast gives the reference's bytes on the executor", "[per_token_cast][slow]") {
  const auto cases = per_token_cast_cases();
  const CaseReport report =
      run_cases("per_token_cast", cases, op_runner("per_token_cast", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("per_token_cast explains a wrong input", "[per_token_cast][errors]") {
  CHECK(outputs_error("per_token_cast", {}, kGroupsOf128) ==
        "tessera: per_token_cast: argument 'x' is missing\n"
        "  expected  a tensor named x\n"
        "  got       no tensors");
  const std::string dtype =
      outputs_error("per_token_cast", {{"x", HostTensor(DType::f16, {4, 256})}}, kGroupsOf128);
  CHECK(
      dtype.starts_with("tessera: per_token_cast: argument 'x' has the wrong dtype\n"
                        "  expected  bf16|f32"));
  CHECK(dtype.ends_with("\n  got       f16[4, 256] on cpu"));
  const std::string rank = outputs_error("per_token_cast", {{"x", x_of({256})}}, kGroupsOf128);
  CHECK(rank.starts_with("tessera: per_token_cast: argument 'x' has the wrong rank\n"));
  CHECK(rank.ends_with("\n  got       bf16[256] on cpu"));
  CHECK(outputs_error("per_token_cast", {{"x", HostTensor(DType::bf16, {4, 256}, {1, 4})}},
                      kGroupsOf128) ==
        "tessera: per_token_cast: argument 'x' has the wrong strides\n"
        "  expected  last stride 1\n"
        "  got       bf16[4, 256], strides [1, 4] on cpu");
}

TEST_CASE("per_token_cast explains wrong parameters", "[per_token_cast][errors]") {
  const auto told = [](const kernels::Params& params) {
    return outputs_error("per_token_cast", {{"x", x_of({4, 256})}}, params);
  };
  CHECK(told({{"num_per_channels", int64_t{128}}}) ==
        "tessera: per_token_cast: parameter 'format' is missing\n"
        "  expected  {e4m3, e2m1}\n"
        "  got       none");
  CHECK(told(with("format", std::string("e5m2"))) ==
        "tessera: per_token_cast: parameter 'format' has a wrong value\n"
        "  expected  {e4m3, e2m1}\n"
        "  got       e5m2");
  CHECK(told(with("round_sf", int64_t{1})) ==
        "tessera: per_token_cast: parameter 'round_sf' has a wrong value\n"
        "  expected  bool\n"
        "  got       1");
  CHECK(told(with("sf_layout", std::string("colmajor"))) ==
        "tessera: per_token_cast: parameter 'sf_layout' has a wrong value\n"
        "  expected  {row_major, col_major_tma, packed_ue8m0}\n"
        "  got       colmajor\n"
        "  hint      did you mean 'row_major'?");
  CHECK(told(with("num_per_chanels", int64_t{128})) ==
        "tessera: per_token_cast: unknown parameter 'num_per_chanels'\n"
        "  expected  format, num_per_channels, x_block_size, x_sf_layout, sf_layout, round_sf\n"
        "  got       num_per_chanels=128\n"
        "  hint      did you mean 'num_per_channels'?");
  const std::string group = told(with("num_per_channels", int64_t{48}));
  CHECK(group.starts_with("tessera: per_token_cast: parameter 'num_per_channels' "));
  CHECK(group.find("16, 32, 64, 128") != std::string::npos);
  CHECK(group.find("\n  got       num_per_channels = 48") != std::string::npos);
}

TEST_CASE("per_token_cast explains a wrong output", "[per_token_cast][errors]") {
  const HostTensor x = x_of({4, 320});
  const HostTensor out(DType::e4m3, {4, 320});
  const HostTensor out_sf(DType::f32, {4, 3});
  const auto told = [&](const TensorView& out_view, const TensorView& sf_view) {
    return run_error("per_token_cast", {{"x", x.view()}, {"out", out_view}, {"out_sf", sf_view}},
                     kGroupsOf128);
  };
  CHECK(told(out.view(), out_sf.view()) == "no error");

  const HostTensor two_groups(DType::f32, {4, 2});
  const std::string shape = told(out.view(), two_groups.view());
  CHECK(
      shape.starts_with("tessera: per_token_cast: argument 'out_sf' has the wrong shape\n"
                        "  expected  f32[4, 3]"));
  CHECK(shape.ends_with("\n  got       f32[4, 2] on cpu"));

  const HostTensor bytes_out(DType::u8, {4, 320});
  CHECK(told(bytes_out.view(), out_sf.view()) ==
        "tessera: per_token_cast: argument 'out' has the wrong dtype\n"
        "  expected  e4m3\n"
        "  got       u8[4, 320] on cpu");

  TensorView inside_x = x.view();
  inside_x.dtype = DType::e4m3;
  const std::string alias = told(inside_x, out_sf.view());
  CHECK(alias.starts_with("tessera: per_token_cast: argument 'out' shares memory with 'x'\n"));
}
TEST_CASE("per_token_cast sees that the padding of its scales lies on x",
          "[per_token_cast][errors]") {
  alignas(16) std::byte storage[1024] = {};
  const HostTensor out(DType::e4m3, {5, 64});
  const TensorView out_sf(storage, DType::f32, {5, 1}, {1, 8}, Device::cpu());
  kernels::Params params = with("num_per_channels", int64_t{64});
  params["sf_layout"] = std::string("col_major_tma");
  const auto told = [&](int64_t bytes) {
    const TensorView x(storage + bytes, DType::bf16, {5, 64});
    return run_error("per_token_cast", {{"x", x}, {"out", out.view()}, {"out_sf", out_sf}}, params);
  };
  CHECK(told(32) == "no error");
  for (const int64_t bytes : {20, 30}) {
    CHECK(told(bytes).starts_with(
        "tessera: per_token_cast: argument 'out_sf' shares memory with 'x'\n"));
  }
}

TEST_CASE("quant ops refuse rows of 2^31 columns and more by name", "[quant][errors]") {
  const auto told = [](const char* op, kernels::Tensors tensors, const kernels::Params& params) {
    return run_error(op, std::move(tensors), params);
  };
  const auto empty = [](DType dtype, int64_t cols) {
    return TensorView(nullptr, dtype, {0, cols});
  };
  constexpr int64_t kLimit = int64_t{1} << 31;
  const std::string wrong = "argument 'x' beyond this limit is not supported\n";
  for (const int64_t cols : {kLimit, kLimit * 2 + 128, int64_t{1} << 62}) {
    CAPTURE(cols);
    CHECK(told("per_token_cast", {{"x", empty(DType::bf16, cols)}}, kGroupsOf128)
              .starts_with("tessera: per_token_cast: " + wrong + "  expected  H <= 2147483647\n"));
    CHECK(told("cast_back", {{"x", empty(DType::i8, cols)}, {"x_sf", empty(DType::f32, 1)}},
               {{"x_block_size", std::vector<int64_t>{1, 64}}})
              .starts_with("tessera: cast_back: " +
                           (cols < INT64_MAX / 4 ? wrong + "  expected  H <= 2147483647\n"
                                                 : "argument 'x' is too large\n"
                                                   "  expected  H/2 <= 2305843009213693951\n")));
  }
}

TEST_CASE("per_token_cast takes more rows than 65535 blocks of one grid dimension hold",
          "[quant][slow]") {
  const int64_t rows = 300'000;
  std::vector<float> x(static_cast<size_t>(rows) * 64, 1.0f);
  x.back() = -896.0f;
  std::vector<uint8_t> out(x.size(), 0xEE);
  std::vector<float> out_sf(static_cast<size_t>(rows), -1.0f);
  kernels::per_token_cast({.x = {x.data(), DType::f32, {rows, 64}},
                           .out = {out.data(), DType::e4m3, {rows, 64}},
                           .out_sf = {out_sf.data(), DType::f32, {rows, 1}},
                           .format = DType::e4m3,
                           .num_per_channels = 64},
                          nullptr);
  CHECK(out_sf.front() == 1.0f / 448.0f);
  CHECK(out_sf.back() == 2.0f);
  CHECK(out.front() == 0x7E);  // 448
  CHECK(out.back() == 0xFE);   // -448
}

TEST_CASE("per_token_cast explains scales that do not fit their layout",
          "[per_token_cast][errors]") {
  const HostTensor x = x_of({5, 320});
  const HostTensor out(DType::e4m3, {5, 320});
  const auto told = [&](const std::string& layout, const HostTensor& out_sf) {
    kernels::Params params = with("sf_layout", layout);
    params["round_sf"] = true;
    return run_error("per_token_cast",
                     {{"x", x.view()}, {"out", out.view()}, {"out_sf", out_sf.view()}}, params);
  };
  CHECK(told("col_major_tma", HostTensor(DType::f32, {5, 3}, {1, 8}, 24)) == "no error");
  CHECK(told("packed_ue8m0", HostTensor(DType::i32, {5, 1}, {1, 8}, 8)) == "no error");
  CHECK(told("col_major_tma", HostTensor(DType::f32, {5, 3}, {1, 5})) ==
        "tessera: per_token_cast: argument 'out_sf' has the wrong strides\n"
        "  expected  strides [1, 8]\n"
        "  got       f32[5, 3], strides [1, 5] on cpu");
  CHECK(told("packed_ue8m0", HostTensor(DType::i32, {5, 3}, {1, 8}, 24)) ==
        "tessera: per_token_cast: argument 'out_sf' has the wrong shape\n"
        "  expected  i32[5, 1]   (T = 5 from x dim 0; columns of out_sf/4 = 1 = ceil(columns of "
        "out_sf / 4))\n"
        "  got       i32[5, 3], strides [1, 8] on cpu");
  CHECK(
      outputs_error("per_token_cast", {{"x", x}}, with("sf_layout", std::string("packed_ue8m0"))) ==
      "tessera: per_token_cast: argument 'sf_layout': packed_ue8m0 scales are powers of two\n"
      "  expected  round_sf where sf_layout = packed_ue8m0\n"
      "  got       round_sf = false, sf_layout = packed_ue8m0");
}

TEST_CASE("per_token_cast explains what e2m1 needs", "[per_token_cast][errors]") {
  CHECK(outputs_error("per_token_cast", {{"x", x_of({4, 33})}},
                      with("format", std::string("e2m1"))) ==
        "tessera: per_token_cast: argument 'x' has the wrong shape\n"
        "  expected  H % 2 = 0 where format = e2m1\n"
        "  got       H = 33 from x dim 1, format = e2m1");
}

TEST_CASE("per_token_cast explains what a quantised x needs", "[per_token_cast][errors]") {
  const HostTensor codes(DType::e4m3, {4, 256}), pairs(DType::i8, {4, 128});
  const HostTensor x_sf(DType::f32, {1, 2});
  const auto told = [&](const HostTensor& x, std::vector<int64_t> block, int64_t group) {
    kernels::Params params = with("num_per_channels", group);
    params["x_block_size"] = std::move(block);
    return outputs_error("per_token_cast", {{"x", x}, {"x_sf", x_sf}}, params);
  };
  CHECK(told(codes, {4, 128}, 128) == "no error");
  CHECK(told(pairs, {128, 128}, 32) == "no error");
  CHECK(outputs_error("per_token_cast", {{"x", codes}, {"x_sf", x_sf}}, kGroupsOf128) ==
        "tessera: per_token_cast: parameter 'x_block_size' is missing\n"
        "  expected  a value where x_sf\n"
        "  got       x_sf of f32, x_block_size = none");
  CHECK(outputs_error("per_token_cast", {{"x", codes}},
                      with("x_block_size", std::vector<int64_t>{1, 128}))
            .starts_with("tessera: per_token_cast: parameter 'x_block_size' goes with"));
  CHECK(outputs_error("per_token_cast", {{"x", codes}}, kGroupsOf128) ==
        "tessera: per_token_cast: argument 'x_sf' is missing\n"
        "  expected  a tensor named x_sf where x is e4m3/e2m1\n"
        "  got       x of e4m3");
  CHECK(outputs_error("per_token_cast", {{"x", x_of({4, 256})}, {"x_sf", x_sf}}, kGroupsOf128) ==
        "tessera: per_token_cast: parameter 'x_block_size' is missing\n"
        "  expected  a value where x_sf\n"
        "  got       x_sf of f32, x_block_size = none");
  CHECK(outputs_error("per_token_cast", {{"x", x_of({4, 256})}},
                      with("x_block_size", std::vector<int64_t>{1, 128})) ==
        "tessera: per_token_cast: parameter 'x_block_size' goes with other arguments only\n"
        "  expected  a value only where x_sf\n"
        "  got       no x_sf, x_block_size = 1,128");
  CHECK(
      told(codes, {4, 96}, 64) ==
      "tessera: per_token_cast: argument 'x_block_size': blocks of x and groups of 'out' do not "
      "nest\n"
      "  expected  bc % 16 = 0 and (bc % num_per_channels = 0 or num_per_channels % bc = 0) where "
      "x_sf\n"
      "  got       bc = 96, num_per_channels = 64, x_sf of f32");
  CHECK(told(codes, {4, 8}, 64).find("bc % 16 = 0 and") != std::string::npos);
  CHECK(told(codes, {0, 32}, 64) ==
        "tessera: per_token_cast: parameter 'x_block_size' has a wrong value\n"
        "  expected  rows,columns, each from 1 to 2^30\n"
        "  got       0,32");
  CHECK(told(codes, {4, 128}, 256) ==
        "tessera: per_token_cast: parameter 'num_per_channels' is out of range\n"
        "  expected  num_per_channels in {16, 32, 64, 128} where x_sf\n"
        "  got       num_per_channels = 256, x_sf of f32");
  CHECK(told(codes, {3, 128}, 128) ==
        "tessera: per_token_cast: argument 'x_sf' has the wrong shape\n"
        "  expected  f32[2, 2]   (rows of x_sf = 2 = ceil(T / 3); columns of x_sf = 2 = ceil(H / "
        "128))\n"
        "  got       f32[1, 2] on cpu");
}
