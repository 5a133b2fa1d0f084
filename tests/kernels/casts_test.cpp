// Conversions between float formats on the executor: the references, the mistakes that their cases
// catch, properties of stochastic rounding, the chain of a round trip, what bad calls are told.

#include <algorithm>
#include <cmath>

#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

HostTensor stochastic(const HostTensor& x, const char* out_dtype, int64_t seed) {
  return op_runner("cast", Device::cpu())(
             {{"x", x}},
             {{"out_dtype", std::string(out_dtype)}, {"stochastic", true}, {"seed", seed}})
      .at("out");
}

bool same(const HostTensor& a, const HostTensor& b) {
  for (int64_t i = 0; i < a.size(); ++i) {
    if (a.bits(i) != b.bits(i)) return false;
  }
  return a.shape() == b.shape();
}

}  // namespace

TEST_CASE("cast equals its reference on the executor", "[cast]") {
  check_cases("cast", cast_cases());
}

TEST_CASE("per_token_cast_and_cast_back equals its reference on the executor",
          "[per_token_cast_and_cast_back]") {
  check_cases("per_token_cast_and_cast_back", per_token_cast_and_cast_back_cases());
}

TEST_CASE("stochastic rounding gives a neighbour, keeps exact values and has the right mean",
          "[cast]") {
  constexpr int64_t kCount = 40000;
  for (const char* out_dtype : {"bf16", "e4m3"}) {
    for (const double value : {0.3, 1.7, 3e-3, -7e-4, 447.0, 0.0157}) {
      CAPTURE(out_dtype, value);
      // Neighbours of the value share a hash with it, so that equal values get other bits.
      HostTensor x(DType::f32, {kCount});
      for (int64_t i = 0; i < kCount; ++i) {
        x.set_value(i, i % 4 == 0 ? value : static_cast<double>(i));
      }
      const HostTensor out = stochastic(x, out_dtype, 3);
      const bool is_bf16 = std::string(out_dtype) == "bf16";
      const double exact = x.value(0);
      const int exponent = is_bf16 ? std::ilogb(exact) - 7 : std::max(std::ilogb(exact), -6) - 3;
      const double step = std::ldexp(1.0, exponent), low = std::floor(exact / step) * step;
      double sum = 0;
      for (int64_t i = 0; i < kCount; i += 4) {
        const double got = out.value(i);
        REQUIRE((got == low || got == low + step));
        sum += got;
      }
      const double share = (exact - low) / step, count = kCount / 4.0;
      const double sigma = step * std::sqrt(share * (1 - share) / count);
      CHECK(std::fabs(sum / count - exact) <= 4 * sigma + 1e-12);
    }
  }
  HostTensor exact(DType::f32, {256});
  for (int64_t i = 0; i < 256; ++i) exact.set_value(i, static_cast<double>(i % 15) * 0.125);
  for (const char* out_dtype : {"bf16", "e4m3"}) {
    const HostTensor out = stochastic(exact, out_dtype, 1);
    for (int64_t i = 0; i < 256; ++i) CHECK(out.value(i) == exact.value(i));
  }
}

TEST_CASE("stochastic rounding depends on values, place and seed alone", "[cast]") {
  const HostTensor x = random_tensor(DType::f32, {4096}, Values::normal, 8);
  const HostTensor out = stochastic(x, "bf16", 3);
  CHECK(same(out, stochastic(x, "bf16", 3)));
  CHECK_FALSE(same(out, stochastic(x, "bf16", 4)));
  // A part of the tensor has the bits that it has in the whole, with the seed of its place.
  HostTensor part(DType::f32, {1000});
  for (int64_t i = 0; i < 1000; ++i) part.set_bits(i, x.bits(2500 + i));
  const HostTensor of_part = stochastic(part, "bf16", 3 + 2500 / 4);
  for (int64_t i = 0; i < 1000; ++i) CHECK(of_part.bits(i) == out.bits(2500 + i));
}

TEST_CASE("the cast tests catch every mutant", "[cast][mutants]") {
  const std::string op = "cast";
  const auto cases = cast_cases();
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught([](HostTensors&, Params& params) { params["stochastic"] = false; }));
  CHECK(caught([](HostTensors&, Params& params) { params["seed"] = int64_t{0}; }));
  CHECK(caught([](HostTensors& in, Params&) {  // subnormal numbers are zeros
    HostTensor& x = in["x"];
    for (int64_t i = 0; i < x.size(); ++i) {
      if (std::fabs(x.value(i)) < 0x1p-126) x.set_value(i, 0);
    }
  }));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {
                    for (int64_t i = 0; i < out["out"].size(); ++i) {  // e4m3 has no room for it
                      if (std::isinf(in.at("x").value(i))) out["out"].set_value(i, NAN);
                    }
                  })));
}

TEST_CASE("the per_token_cast_and_cast_back tests catch every mutant",
          "[per_token_cast_and_cast_back][mutants]") {
  const std::string op = "per_token_cast_and_cast_back";
  const auto cases = per_token_cast_and_cast_back_cases();
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  for (const char* flag : {"round_sf", "e4m3_sf"}) {
    CHECK(caught([=](HostTensors&, Params& params) { params[flag] = false; }));
  }
  CHECK(caught([](HostTensors&, Params& params) { params["num_per_channels"] = int64_t{64}; }));
  CHECK(caught([](HostTensors&, Params& params) { params["format"] = std::string("e4m3"); }));
}

TEST_CASE("per_token_cast_and_cast_back is the chain of both casts",
          "[per_token_cast_and_cast_back]") {
  for (const bool round : {false, true}) {
    const HostTensor x = random_tensor(DType::bf16, {9, 256}, Values::normal, 1);
    const Params shared = {
        {"format", std::string("e4m3")}, {"num_per_channels", int64_t{64}}, {"round_sf", round}};
    const HostTensors codes = op_runner("per_token_cast", Device::cpu())({{"x", x}}, shared);
    const HostTensors back = op_runner("per_token_cast_back", Device::cpu())(
        {{"x", codes.at("out")}, {"x_sf", codes.at("out_sf")}},
        {{"num_per_channels", int64_t{64}}});
    const HostTensors trip =
        op_runner("per_token_cast_and_cast_back", Device::cpu())({{"x", x}}, shared);
    CHECK(same(trip.at("x"), back.at("out")));
  }
}

TEST_CASE("casts explain wrong arguments", "[cast][per_token_cast_and_cast_back][errors]") {
  const auto told = [](DType dtype, Dims shape, const Params& params) {
    return outputs_error("cast", {{"x", HostTensor(dtype, shape)}}, params);
  };
  const std::string bf16 = "bf16", e4m3 = "e4m3", f16 = "f16";
  CHECK(told(DType::f32, {5}, {{"out_dtype", bf16}}) == "no error");
  CHECK(told(DType::f32, {6}, {{"out_dtype", bf16}, {"stochastic", true}}) ==
        "tessera: cast: argument 'x': the number of elements is no multiple of 4\n"
        "  expected  T % 4 = 0 where stochastic\n"
        "  got       T = 6 from x dim 0, stochastic = true");
  CHECK(told(DType::f32, {8}, {{"out_dtype", f16}, {"stochastic", true}}) ==
        "tessera: cast: parameter 'stochastic' does not go with the dtypes\n"
        "  expected  f32 to bf16, or f32 or bf16 to e4m3\n"
        "  got       f32 to f16");
  CHECK(told(DType::f32, {8}, {{"out_dtype", bf16}, {"seed", int64_t{-1}}}) ==
        "tessera: cast: parameter 'seed' is out of range\n"
        "  expected  0 <= seed <= 4294967295\n"
        "  got       seed = -1");
  CHECK(outputs_error("per_token_cast_and_cast_back", {{"x", HostTensor(DType::f32, {5, 128})}},
                      {{"format", e4m3},
                       {"num_per_channels", int64_t{32}},
                       {"round_sf", true},
                       {"e4m3_sf", true}}) ==
        "tessera: per_token_cast_and_cast_back: parameter 'e4m3_sf' does not go with 'round_sf'\n"
        "  expected  not (round_sf and e4m3_sf)\n"
        "  got       round_sf = true, e4m3_sf = true");
  CHECK(
      outputs_error("per_token_cast_and_cast_back", {{"x", HostTensor(DType::f32, {5, 96})}},
                    {{"format", e4m3}, {"num_per_channels", int64_t{32}}}) ==
      "tessera: per_token_cast_and_cast_back: argument 'x': a row has the wrong number of columns\n"
      "  expected  H % 64 = 0 and H % num_per_channels = 0\n"
      "  got       H = 96 from x dim 1, num_per_channels = 32");
}
