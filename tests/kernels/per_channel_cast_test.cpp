// per_channel_cast_and_transpose on the executor: the reference, mistakes that the cases must catch,
// and what bad calls are told.

#include "tests/reference/per_channel_cast.h"

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

TEST_CASE("per_channel_cast_and_transpose gives the reference's bytes on the executor",
          "[per_channel_cast]") {
  const auto cases = per_channel_cast_and_transpose_cases();
  const CaseReport report = run_cases("per_channel_cast_and_transpose", cases,
                                      op_runner("per_channel_cast_and_transpose", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("per_channel_cast_and_transpose moves 16-byte vectors and needs no barrier",
          "[per_channel_cast]") {
  const kernels::OpInfo& op = kernels::find_op("per_channel_cast_and_transpose");
  const HostTensor x(DType::bf16, {256, 192}), out(DType::e4m3, {192, 256}),
      out_sf(DType::f32, {8, 192});
  const auto built = op.kernels({{"x", x.view()}, {"out", out.view()}, {"out_sf", out_sf.view()}},
                                kernels::check_params(op, {{"num_per_tokens", int64_t{32}}}));
  REQUIRE(built.size() == 1);
  const std::string text = cuda_text(built.front());
  CHECK(count(text, "load<8>(") == 1);
  CHECK(count(text, "store<16>(&out[") == 1);
  CHECK(count(text, "store<4>(&out_sf[") == 1);  // of half of the columns: two threads share a run
  CHECK(count(text, "__syncthreads") == 0);
}

namespace {

enum class Mutant {
  none,
  one_scale_per_tile,
  swaps_tokens,
  not_transposed,
  next_column,
  nan_counts
};

HostTensors mutated(const HostTensors& inputs, const Params& params, Mutant mutant) {
  HostTensor x = inputs.at("x");
  const int64_t tokens = x.shape()[0], hidden = x.shape()[1];
  const auto run = std::get<int64_t>(params.at("num_per_tokens"));
  const bool round_sf = std::get<bool>(params.at("round_sf"));
  if (mutant == Mutant::nan_counts) {
    for (int64_t i = 0; i < x.size(); ++i) {
      if (x.value(i) != x.value(i)) x.set_value(i, 1e30);
    }
  }
  auto [out, out_sf] = reference::per_channel_cast_and_transpose(x, run, round_sf);
  if (mutant == Mutant::one_scale_per_tile) {
    for (int64_t i = 0; i < out_sf.size(); ++i) {
      const int64_t row = i / hidden, first = row * run / 128 * 128 / run;
      out_sf.set_bits(i, out_sf.bits(first * hidden + i % hidden));
    }
  }
  for (int64_t h = 0; h < hidden && mutant == Mutant::swaps_tokens; ++h) {
    for (int64_t t = 0; t < tokens; t += 2) {
      const uint64_t bits = out.bits(h * tokens + t);
      out.set_bits(h * tokens + t, out.bits(h * tokens + t + 1));
      out.set_bits(h * tokens + t + 1, bits);
    }
  }
  if (mutant == Mutant::next_column && hidden > 1) {
    for (int64_t i = 0; i + 1 < out_sf.size(); ++i) out_sf.set_bits(i, out_sf.bits(i + 1));
  }
  if (mutant == Mutant::not_transposed) {
    HostTensor rows = out;
    for (int64_t i = 0; i < out.size(); ++i) {
      rows.set_bits(i, out.bits(i % hidden * tokens + i / hidden));
    }
    out = rows;
  }
  return {{"out", out}, {"out_sf", out_sf}};
}

}  // namespace

TEST_CASE("the per_channel_cast_and_transpose tests catch every mutant",
          "[per_channel_cast][mutants]") {
  const auto caught = [](Mutant mutant) {
    const CaseReport report =
        run_cases("per_channel_cast_and_transpose", per_channel_cast_and_transpose_cases(),
                  [=](const HostTensors& in, const Params& p) { return mutated(in, p, mutant); });
    return !report.failures.empty();
  };
  CHECK_FALSE(caught(Mutant::none));
  for (const Mutant mutant : {Mutant::one_scale_per_tile, Mutant::swaps_tokens,
                              Mutant::not_transposed, Mutant::next_column, Mutant::nan_counts}) {
    CAPTURE(static_cast<int>(mutant));
    CHECK(caught(mutant));
  }
}

TEST_CASE("per_channel_cast_and_transpose explains wrong arguments", "[per_channel_cast][errors]") {
  const auto told = [](const HostTensor& x, int64_t run) {
    return outputs_error("per_channel_cast_and_transpose", {{"x", x}}, {{"num_per_tokens", run}});
  };
  CHECK(told(HostTensor(DType::bf16, {128, 64}), 32) == "no error");
  CHECK(told(HostTensor(DType::bf16, {160, 64}), 32) ==
        "tessera: per_channel_cast_and_transpose: argument 'x' has the wrong shape\n"
        "  expected  T % 128 = 0\n"
        "  got       T = 160 from x dim 0");
  CHECK(told(HostTensor(DType::bf16, {128, 96}), 32) ==
        "tessera: per_channel_cast_and_transpose: argument 'x' has the wrong shape\n"
        "  expected  H % 64 = 0\n"
        "  got       H = 96 from x dim 1");
  CHECK(told(HostTensor(DType::f32, {128, 64}), 32) ==
        "tessera: per_channel_cast_and_transpose: argument 'x' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f32[128, 64] on cpu");
  CHECK(told(HostTensor(DType::bf16, {128, 64}), 64) ==
        "tessera: per_channel_cast_and_transpose: parameter 'num_per_tokens' has a wrong value\n"
        "  expected  {32, 128}\n"
        "  got       64");
  CHECK(told(HostTensor(DType::bf16, {128, 64}, {128, 1}), 32).find("has the wrong strides") !=
        std::string::npos);
  const HostTensor x(DType::bf16, {128, 64}), out(DType::e4m3, {128, 64});
  const HostTensor out_sf(DType::f32, {4, 64});
  CHECK(run_error("per_channel_cast_and_transpose",
                  {{"x", x.view()}, {"out", out.view()}, {"out_sf", out_sf.view()}},
                  {{"num_per_tokens", int64_t{32}}}) ==
        "tessera: per_channel_cast_and_transpose: argument 'out' has the wrong shape\n"
        "  expected  e4m3[64, 128]   (H = 64 from x dim 1; T = 128 from x dim 0)\n"
        "  got       e4m3[128, 64] on cpu");
}
