// round_to_tf32 on the executor: the reference, facts of the format, what bad calls are told, and
// mutants that the cases catch.

#include <cmath>

#include "tests/reference/mhc_pre.h"
#include "tests/reference/numeric.h"
#include "tests/support/catch.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using reference::bits_of;
using reference::float_of;

TEST_CASE("round_to_tf32 equals its reference on the executor", "[round_to_tf32]") {
  const auto cases = round_to_tf32_cases();
  const CaseReport report =
      run_cases("round_to_tf32", cases, op_runner("round_to_tf32", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("round_to_tf32 keeps 10 bits, rounds ties away from zero and keeps NaN",
          "[round_to_tf32]") {
  constexpr std::pair<uint32_t, uint32_t> kBits[] = {
      {0x3F800000, 0x3F800000}, {0x3F800FFF, 0x3F800000}, {0x3F801000, 0x3F802000},
      {0xBF801000, 0xBF802000}, {0x3F803000, 0x3F804000}, {0x3FFFF000, 0x40000000},
      {0x00000FFF, 0x00000000}, {0x80001000, 0x80002000}, {0x80000001, 0x80000000},
      {0x7F7FEFFF, 0x7F7FE000}, {0x7F7FFFFF, 0x7F800000}, {0xFF800000, 0xFF800000},
      {0x7FFFFFFF, 0x7FFFFFFF}, {0x7F800001, 0x7FFFFFFF}, {0xFFC00000, 0x7FFFFFFF}};
  HostTensor x(DType::f32, {static_cast<int64_t>(std::size(kBits))});
  for (int64_t e = 0; e < x.size(); ++e) x.set_bits(e, kBits[e].first);
  const HostTensor out = op_runner("round_to_tf32", Device::cpu())({{"x", x}}, {}).at("out");
  for (int64_t e = 0; e < x.size(); ++e) {
    CAPTURE(kBits[e].first);
    CHECK(out.bits(e) == kBits[e].second);
    CHECK(bits_of(reference::round_to_tf32(float_of(kBits[e].first))) == kBits[e].second);
  }
}

TEST_CASE("round_to_tf32 explains wrong arguments", "[round_to_tf32][errors]") {
  const auto told = [](const HostTensor& x) {
    return outputs_error("round_to_tf32", {{"x", x}}, {});
  };
  CHECK(told(HostTensor(DType::f32, {2, 3, 4})) == "no error");
  CHECK(told(HostTensor(DType::bf16, {6})) ==
        "tessera: round_to_tf32: argument 'x' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       bf16[6] on cpu");
  CHECK(told(HostTensor(DType::f32, {6, 4}, {8, 1})) ==
        "tessera: round_to_tf32: argument 'x' has the wrong strides\n"
        "  expected  row-major strides [4, 1]\n"
        "  got       f32[6, 4], strides [8, 1] on cpu");
}

TEST_CASE("the round_to_tf32 tests catch every mutant", "[mutants][mhc]") {
  enum class Mutant { none, truncates, ties_to_even, low_bits_stay, wraps_nan, moves_nan, to_bf16 };
  const auto mutated = [](const HostTensors& in, const Params&, Mutant mutant) {
    const HostTensor& x = in.at("x");
    HostTensor out(DType::f32, x.shape());
    for (int64_t e = 0; e < x.size(); ++e) {
      const auto bits = static_cast<uint32_t>(x.bits(e));
      const bool is_nan = std::isnan(float_of(bits));
      uint32_t half = 0x1000U;
      if (mutant == Mutant::truncates) half = 0;
      if (mutant == Mutant::ties_to_even) half = 0xFFFU + (bits >> 13 & 1U);
      if (mutant == Mutant::to_bf16) half = 0x8000U;
      uint32_t kept = 0xFFFFE000U;
      if (mutant == Mutant::low_bits_stay) kept = 0xFFFFFFFFU;
      if (mutant == Mutant::to_bf16) kept = 0xFFFF0000U;
      uint32_t result = (bits + half) & kept;
      if (is_nan && mutant != Mutant::wraps_nan) {
        result = mutant == Mutant::moves_nan ? bits : 0x7FFFFFFFU;
      }
      out.set_bits(e, result);
    }
    return HostTensors{{"out", out}};
  };
  check_mutants("round_to_tf32", round_to_tf32_cases(), Mutant::to_bf16, mutated);
}
