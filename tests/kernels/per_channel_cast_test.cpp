// The ops that cast columns, on the executor: the references, mistakes that the cases must catch, and
// what bad calls are told.

#include "tests/reference/per_channel_cast.h"

#include <algorithm>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

}  // namespace

TEST_CASE("per_channel_cast gives the reference's bytes on the executor", "[per_channel_cast]") {
  check_cases("per_channel_cast", per_channel_cast_cases());
}

TEST_CASE("per_channel_cast_fused gives the reference's bytes on the executor",
          "[per_channel_cast][slow]") {
  check_cases("per_channel_cast_fused", per_channel_cast_fused_cases());
}

TEST_CASE("per_channel_cast_and_transpose gives the reference's bytes on the executor",
          "[per_channel_cast]") {
  check_cases("per_channel_cast_and_transpose", per_channel_cast_and_transpose_cases());
}

TEST_CASE("per_channel_cast_fused of all rows in order is per_channel_cast", "[per_channel_cast]") {
  for (const OpCase& test : per_channel_cast_cases()) {
    CAPTURE(test.label);
    CHECK_FALSE(
        is_caught("per_channel_cast", {test}, op_runner("per_channel_cast_fused", Device::cpu())));
  }
}

TEST_CASE("per_channel_cast_fused reads vectors of 16 bytes", "[per_channel_cast]") {
  const kernels::OpInfo& op = kernels::find_op("per_channel_cast_fused");
  const auto text_of = [&](DType dtype) {
    const HostTensor x(dtype, {64, 256}), x_sf(DType::f32, {64, 2}), index(DType::i32, {128});
    const HostTensor out(DType::e4m3, {128, 256}), out_sf(DType::f32, {1, 256});
    kernels::Tensors tensors = {{"x", x.view()},
                                {"pos_to_token", index.view()},
                                {"out", out.view()},
                                {"out_sf", out_sf.view()}};
    Params params;
    if (dtype == DType::e4m3) {
      tensors.emplace("x_sf", x_sf.view());
      params["num_per_channels"] = int64_t{128};
    }
    const auto built = op.kernels(tensors, kernels::check_params(op, params));
    REQUIRE(built.size() == 1);
    return cuda_text(built.front());
  };
  CHECK(count(text_of(DType::bf16), "store<8>(&out[") == 1);
  CHECK(count(text_of(DType::e4m3), "store<16>(&out[") == 1);
  CHECK(count(text_of(DType::f32), "store<4>(&out[") == 1);
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

enum class Mutant { none, one_scale_per_tile, nan_counts };

HostTensors mutated(const HostTensors& inputs, const Params& params, Mutant mutant) {
  HostTensor x = inputs.at("x");
  const int64_t hidden = x.shape()[1];
  const auto run = std::get<int64_t>(params.at("num_per_tokens"));
  for (int64_t i = 0; i < x.size() && mutant == Mutant::nan_counts; ++i) {
    if (x.value(i) != x.value(i)) x.set_value(i, 1e30);
  }
  auto [out, out_sf] =
      reference::per_channel_cast_and_transpose(x, run, std::get<bool>(params.at("round_sf")));
  for (int64_t i = 0; i < out_sf.size() && mutant == Mutant::one_scale_per_tile; ++i) {
    const int64_t row = i / hidden, first = row * run / 128 * 128 / run;
    out_sf.set_bits(i, out_sf.bits(first * hidden + i % hidden));
  }
  return {{"out", out}, {"out_sf", out_sf}};
}

}  // namespace

TEST_CASE("the per_channel_cast_and_transpose tests catch every mutant",
          "[per_channel_cast][mutants][slow]") {
  check_mutants("per_channel_cast_and_transpose", per_channel_cast_and_transpose_cases(),
                Mutant::nan_counts, mutated);
}

namespace {

enum class FusedMutant {
  none,
  one_factor,       // code * (s * inverse)
  row_0_in_gaps,    // missing rows of the last run read index 0
  padding_clamped,  // a negative index reads row 0
  unscaled,
  run_of_64,
};

HostTensors mutated_fused(const HostTensors& inputs, const Params& params, FusedMutant mutant) {
  const auto optional = [&](const char* name) {
    const auto found = inputs.find(name);
    return found == inputs.end() ? nullptr : &found->second;
  };
  const HostTensor *x_sf = optional("x_sf"), *index = optional("pos_to_token");
  const HostTensor& x = inputs.at("x");
  const auto round_sf = std::get<bool>(params.at("round_sf"));
  const auto cast = [&](const HostTensor* scales, const HostTensor* of, int64_t run) {
    return reference::per_channel_cast(reference::gathered_rows(x, scales, of), run, round_sf);
  };
  reference::ChannelCastResult result =
      cast(mutant == FusedMutant::unscaled ? nullptr : x_sf, index, 128);
  const int64_t hidden = x.shape()[1];
  if (mutant == FusedMutant::run_of_64) {
    const auto shorter = cast(x_sf, index, 64);
    result.out = shorter.out;
    for (int64_t i = 0; i < result.out_sf.size(); ++i) {
      result.out_sf.set_bits(i, shorter.out_sf.bits(i / hidden * 2 * hidden + i % hidden));
    }
  }
  if (mutant == FusedMutant::row_0_in_gaps && index != nullptr && x.shape()[0] > 0) {
    const int64_t rows = index->size(), whole = (rows + 127) / 128 * 128;
    HostTensor longer(DType::i32, {whole});
    for (int64_t p = 0; p < whole; ++p) longer.set_value(p, p < rows ? index->value(p) : 0);
    const auto leaked = cast(x_sf, &longer, 128);
    result.out_sf = leaked.out_sf;
    for (int64_t i = 0; i < result.out.size(); ++i) result.out.set_bits(i, leaked.out.bits(i));
  }
  if (mutant == FusedMutant::padding_clamped && index != nullptr) {
    HostTensor clamped = *index;
    for (int64_t p = 0; p < clamped.size(); ++p) {
      if (clamped.value(p) < 0) clamped.set_value(p, 0);
    }
    result = cast(x_sf, &clamped, 128);
  }
  if (mutant == FusedMutant::one_factor && x_sf != nullptr) {
    for (int64_t i = 0; i < result.out.size(); ++i) {
      const int64_t row = i / hidden, h = i % hidden;
      const int64_t token = index == nullptr ? row : static_cast<int64_t>(index->value(row));
      if (token < 0 || token >= x.shape()[0]) continue;
      const auto sf = static_cast<float>(result.out_sf.value(row / 128 * hidden + h));
      const float factor =
          static_cast<float>(x_sf->value(token * (hidden / 128) + h / 128)) * (1.0F / sf);
      const double code = x.value(token * hidden + h);
      result.out.set_value(i, static_cast<double>(static_cast<float>(code) * factor));
    }
  }
  return {{"out", result.out}, {"out_sf", result.out_sf}};
}

}  // namespace

TEST_CASE("the per_channel_cast_fused tests catch every mutant",
          "[per_channel_cast][mutants][slow]") {
  check_mutants("per_channel_cast_fused", per_channel_cast_fused_cases(), FusedMutant::run_of_64,
                mutated_fused);
}

TEST_CASE("the per_channel_cast tests catch runs of 64", "[per_channel_cast][mutants][slow]") {
  CHECK(is_caught("per_channel_cast", per_channel_cast_cases(),
                  [](const HostTensors& in, const Params& params) {
                    return mutated_fused(in, params, FusedMutant::run_of_64);
                  }));
}

TEST_CASE("per_channel_cast explains wrong arguments", "[per_channel_cast][errors]") {
  const auto told = [](const HostTensor& x, const Params& params) {
    return outputs_error("per_channel_cast", {{"x", x}}, params);
  };
  CHECK(told(HostTensor(DType::f32, {128, 64}), {}) == "no error");
  CHECK(told(HostTensor(DType::bf16, {130, 64}), {}) ==
        "tessera: per_channel_cast: argument 'x' has the wrong shape\n"
        "  expected  T % 128 = 0\n"
        "  got       T = 130 from x dim 0");
  CHECK(told(HostTensor(DType::bf16, {128, 80}), {}) ==
        "tessera: per_channel_cast: argument 'x' has the wrong shape\n"
        "  expected  H % 64 = 0\n"
        "  got       H = 80 from x dim 1");
  CHECK(told(HostTensor(DType::e4m3, {128, 64}), {}) ==
        "tessera: per_channel_cast: argument 'x' has the wrong dtype\n"
        "  expected  bf16|f32\n"
        "  got       e4m3[128, 64] on cpu");
  CHECK(told(HostTensor(DType::bf16, {128, 64}), {{"num_per_tokens", int64_t{32}}}) ==
        "tessera: per_channel_cast: parameter 'num_per_tokens' has a wrong value\n"
        "  expected  {128}\n"
        "  got       32");
}

TEST_CASE("per_channel_cast_fused explains wrong arguments", "[per_channel_cast][errors]") {
  const HostTensor x(DType::bf16, {128, 256}), codes(DType::e4m3, {128, 256});
  const HostTensor x_sf(DType::f32, {128, 2}), index(DType::i32, {32});
  const auto told = [](const HostTensors& inputs, const Params& params) {
    return outputs_error("per_channel_cast_fused", inputs, params);
  };
  const Params by_128 = {{"num_per_channels", int64_t{128}}};
  CHECK(told({{"x", x}}, {}) == "no error");
  CHECK(told({{"x", codes}, {"x_sf", x_sf}, {"pos_to_token", index}}, by_128) == "no error");
  CHECK(told({{"x", HostTensor(DType::bf16, {96, 256})}}, {}) ==
        "tessera: per_channel_cast_fused: argument 'x' has the wrong shape\n"
        "  expected  T % 128 = 0 where not pos_to_token\n"
        "  got       T = 96 from x dim 0, no pos_to_token");
  CHECK(told({{"x", x}, {"pos_to_token", HostTensor(DType::i32, {24})}}, {}) ==
        "tessera: per_channel_cast_fused: argument 'pos_to_token' has the wrong shape\n"
        "  expected  P % 16 = 0 where pos_to_token\n"
        "  got       P = 24, pos_to_token of i32");
  CHECK(told({{"x", codes}}, {}) ==
        "tessera: per_channel_cast_fused: argument 'x_sf' is missing\n"
        "  expected  a tensor named x_sf where x is e4m3\n"
        "  got       x of e4m3");
  const std::string only_codes =
      "tessera: per_channel_cast_fused: argument 'num_per_channels': only e4m3 has scales, one per "
      "128 columns\n"
      "  expected  num_per_channels != none iff x_sf\n"
      "  got       num_per_channels = ";
  CHECK(told({{"x", x}}, by_128) == only_codes + "128, no x_sf");
  CHECK(told({{"x", codes}, {"x_sf", x_sf}}, {}) == only_codes + "none, x_sf of f32");
  CHECK(
      told({{"x", HostTensor(DType::e4m3, {128, 64})}, {"x_sf", HostTensor(DType::f32, {128, 1})}},
           by_128) ==
      "tessera: per_channel_cast_fused: argument 'x' has the wrong shape\n"
      "  expected  H % 128 = 0 where x is e4m3\n"
      "  got       H = 64 from x dim 1, x of e4m3");
  CHECK(told({{"x", codes}, {"x_sf", HostTensor(DType::f32, {128, 3})}}, by_128) ==
        "tessera: per_channel_cast_fused: argument 'x_sf' has the wrong shape\n"
        "  expected  f32[128, 2]   (T = 128 from x dim 0; columns of x_sf = 2 = ceil(H / 128))\n"
        "  got       f32[128, 3] on cpu");
  CHECK(told({{"x", x}, {"pos_to_token", HostTensor(DType::i64, {32})}}, {}) ==
        "tessera: per_channel_cast_fused: argument 'pos_to_token' has the wrong dtype\n"
        "  expected  i32\n"
        "  got       i64[32] on cpu");
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
