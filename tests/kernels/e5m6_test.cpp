// per_token_cast_to_e5m6 and cast_back_e5m6: facts of the format, the references on the executor,
// mistakes that the cases must catch, and what bad calls are told.

#include "tests/reference/e5m6.h"

#include <cmath>

#include "tests/reference/numeric.h"
#include "tests/support/catch.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using reference::encode_e5m6;
using reference::float_of;

TEST_CASE("e5m6 codes follow the examples of the specification", "[e5m6][reference]") {
  CHECK(encode_e5m6(0x1p-20F) == 0x001);
  CHECK(encode_e5m6(0x1.8p-20F) == 0x001);
  CHECK(encode_e5m6(float_of(0x35830000)) == 0x002);
  CHECK(encode_e5m6(float_of(0x35F33333)) == 0x002);
  CHECK(encode_e5m6(0x1p-21F) == 0);
  CHECK(encode_e5m6(0x1p-14F * 63 / 64) == 0x03F);
  CHECK(encode_e5m6(0x1p-14F) == 0x040);
  CHECK(encode_e5m6(1.0078125F) == 0x3C0);
  CHECK(encode_e5m6(1.0234375F) == 0x3C2);
  CHECK(encode_e5m6(65024.0F) == 0x7BF);
  CHECK(encode_e5m6(65280.0F) == 0x7C0);
  CHECK(encode_e5m6(-0.0F) == 0x800);
  CHECK(encode_e5m6(-std::nanf("")) == 0x7FF);

  HostTensor row(DType::u8, {1, 12});
  const float values[] = {1, -1, 2, 0.5, 3, -4, 65024, 0x1p-20F};
  for (int64_t i = 0; i < 8; ++i) reference::store_e5m6(row, 0, i, encode_e5m6(values[i]));
  const uint8_t bytes[] = {0x40, 0xC0, 0x0B, 0x3C, 0x0C, 0x42, 0x80, 0x03, 0x01, 0xF0, 0x7B, 0x40};
  for (int64_t i = 0; i < 12; ++i) CHECK(row.bits(i) == bytes[i]);
}

TEST_CASE("e5m6 ops give the reference's bytes on the executor", "[e5m6][slow]") {
  const std::string op = GENERATE("per_token_cast_to_e5m6", "cast_back_e5m6");
  const auto cases =
      op == "cast_back_e5m6" ? cast_back_e5m6_cases() : per_token_cast_to_e5m6_cases();
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

// ---- mutants: copies of the references with one mistake

namespace {

enum class Mutant {
  none,
  nearest_below_2_to_minus_14,
  ties_away,
  truncates,
  loses_minus_zero,
  nan_wraps,
  flushes_small,
};

uint32_t mutated_code(float value, Mutant mutant) {
  const uint32_t code = encode_e5m6(value);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return mutant == Mutant::nan_wraps ? 0x800 : code;
  if (mutant == Mutant::nearest_below_2_to_minus_14 && magnitude < 0x1p-14F) {
    const auto nearest = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 20)));
    return nearest | (code & 0x800);
  }
  const auto at_code = [](uint32_t c) { return reference::decode(DType::f16, (c & 0x7FF) << 4); };
  const auto wide = static_cast<double>(magnitude);
  if (mutant == Mutant::ties_away && at_code(code) + at_code(code + 1) == 2 * wide) return code + 1;
  if (mutant == Mutant::truncates && at_code(code) > wide) return code - 1;
  if (mutant == Mutant::loses_minus_zero && code == 0x800) return 0;
  if (mutant == Mutant::flushes_small && magnitude < 0x1p-14F) return code & 0x800;
  return code;
}

HostTensors mutated_cast(const HostTensors& inputs, const Params& params, Mutant mutant) {
  const HostTensor& x = inputs.at("x");
  const auto layout = reference::sf_layout_of(std::get<std::string>(params.at("sf_layout")));
  auto [out, out_sf] =
      reference::per_token_cast_to_e5m6(x, layout, std::get<bool>(params.at("round_sf")));
  const int64_t hidden = x.shape()[1];
  for (int64_t t = 0; t < x.shape()[0]; ++t) {
    float amax = 0;
    for (int64_t h = 0; h < hidden; ++h) {
      amax = std::fmax(amax, std::fabs(static_cast<float>(x.value(t * hidden + h))));
    }
    const float inv =
        reference::scale_of(amax, 65024.0F, 1e-4F, std::get<bool>(params.at("round_sf"))).inv;
    for (int64_t h = 0; h < hidden; ++h) {
      const float value = static_cast<float>(x.value(t * hidden + h)) * inv;
      reference::store_e5m6(out, t, h, mutated_code(value, mutant));
    }
  }
  return {{"out", out}, {"out_sf", out_sf}};
}

}  // namespace

TEST_CASE("the e5m6 tests catch every mutant", "[e5m6][mutants][slow]") {
  check_mutants("per_token_cast_to_e5m6", per_token_cast_to_e5m6_cases(), Mutant::flushes_small,
                mutated_cast);
}

TEST_CASE("e5m6 ops explain wrong arguments", "[e5m6][errors]") {
  const auto told = [](const HostTensor& x, const Params& params) {
    return outputs_error("per_token_cast_to_e5m6", {{"x", x}}, params);
  };
  CHECK(told(HostTensor(DType::bf16, {3, 64}), {}) == "no error");
  CHECK(told(HostTensor(DType::bf16, {3, 60}), {}) ==
        "tessera: per_token_cast_to_e5m6: argument 'x' has the wrong shape\n"
        "  expected  H % 8 = 0\n"
        "  got       H = 60 from x dim 1");
  CHECK(told(HostTensor(DType::f16, {3, 64}), {}) ==
        "tessera: per_token_cast_to_e5m6: argument 'x' has the wrong dtype\n"
        "  expected  bf16|f32\n"
        "  got       f16[3, 64] on cpu");
  CHECK(told(HostTensor(DType::bf16, {1, 24584}), {}) ==
        "tessera: per_token_cast_to_e5m6: argument 'x': rows of so many columns are not supported\n"
        "  expected  H <= 24576\n"
        "  got       H = 24584 from x dim 1");
  CHECK(told(HostTensor(DType::bf16, {3, 64}), {{"sf_layout", std::string("packed_ue8m0")}}) ==
        "tessera: per_token_cast_to_e5m6: argument 'sf_layout': packed_ue8m0 scales are powers of "
        "two\n"
        "  expected  round_sf where sf_layout = packed_ue8m0\n"
        "  got       round_sf = false, sf_layout = packed_ue8m0");
  const HostTensor x(DType::bf16, {4, 64}), out(DType::u8, {4, 64}), out_sf(DType::f32, {4, 1});
  CHECK(run_error("per_token_cast_to_e5m6",
                  {{"x", x.view()}, {"out", out.view()}, {"out_sf", out_sf.view()}}, {}) ==
        "tessera: per_token_cast_to_e5m6: argument 'out' has the wrong shape\n"
        "  expected  u8[4, 96]   (T = 4 from x dim 0; H*3/2 = 96 = twelve bits per code)\n"
        "  got       u8[4, 64] on cpu");

  const auto back = [](const HostTensor& codes, const HostTensor& x_sf, const Params& params) {
    return outputs_error("cast_back_e5m6", {{"x", codes}, {"x_sf", x_sf}}, params);
  };
  const HostTensor codes(DType::u8, {4, 96});
  CHECK(back(codes, out_sf, {}) == "no error");
  CHECK(back(HostTensor(DType::u8, {4, 90}), out_sf, {}) ==
        "tessera: cast_back_e5m6: argument 'x' has the wrong shape\n"
        "  expected  H % 8 = 0\n"
        "  got       H = 60 = 2 / 3 of x dim 1, twelve bits per code");
  CHECK(back(codes, HostTensor(DType::f32, {4, 2}), {}) ==
        "tessera: cast_back_e5m6: argument 'x_sf' has the wrong shape\n"
        "  expected  f32[4, 1]   (rows of x_sf = 4 = ceil(T / 1); columns of x_sf = 1 = ceil(H / "
        "64))\n"
        "  got       f32[4, 2] on cpu");
  CHECK(back(codes, out_sf, {{"x_block_size", std::vector<int64_t>{4}}}) ==
        "tessera: cast_back_e5m6: parameter 'x_block_size' has a wrong value\n"
        "  expected  rows,columns, each from 1 to 2^30\n"
        "  got       4");
}
