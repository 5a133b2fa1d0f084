// per_block_cast and the ops that do one half of it on the executor: the reference, the accesses of
// the generated code, mistakes that the cases must catch, and what bad calls are told.

#include "tests/reference/per_block_cast.h"

#include <algorithm>
#include <cmath>

#include "kernels/op.h"
#include "tests/reference/numeric.h"
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

TEST_CASE("per_block_cast equals its reference on the executor", "[per_block_cast][slow]") {
  check_cases("per_block_cast", per_block_cast_cases());
}

TEST_CASE("per_block_cast_with_sf_only equals its reference on the executor",
          "[per_block_cast][slow]") {
  check_cases("per_block_cast_with_sf_only", per_block_cast_with_sf_only_cases());
}

TEST_CASE("per_block_cast_with_precomputed_sf equals its reference on the executor",
          "[per_block_cast][slow]") {
  check_cases("per_block_cast_with_precomputed_sf", per_block_cast_with_precomputed_sf_cases());
}

TEST_CASE("per_block_cast reads x in 16-byte vectors and meets once", "[per_block_cast]") {
  const kernels::OpInfo& op = kernels::find_op("per_block_cast");
  const DType dtype = GENERATE(DType::bf16, DType::f32);
  const HostTensor x(dtype, {256, 512}), out(DType::e4m3, {256, 512}), out_sf(DType::f32, {8, 16});
  const auto built = op.kernels(
      {{"x", x.view()}, {"out", out.view()}, {"out_sf", out_sf.view()}},
      kernels::check_params(
          op, {{"format", std::string("e4m3")}, {"block_size", std::vector<int64_t>{32, 32}}}));
  REQUIRE(built.size() == 1);
  const std::string text = cuda_text(built.front());
  const std::string elements = dtype == DType::bf16 ? "8" : "4";
  CHECK(count(text, "load_or_zero<" + elements + ">(") == 1);
  CHECK(count(text, "store<" + elements + ">(&out[") == 1);
  CHECK(count(text, "__syncthreads") == 1);
}

namespace {

enum class Mutant {
  none,
  nan_poisons,
  first_row_only,
  skips_last_row,
  skips_last_column,
  whole_blocks_only,
  no_floor,
  swapped_blocks,
  truncates,
  inverse_of_scale,
  infinity_keeps_values,
};

float mutated_amax(const HostTensor& x, int64_t row, int64_t col, const Dims& block,
                   Mutant mutant) {
  int64_t end_row = std::min(row + block[0], x.shape()[0]);
  int64_t end_col = std::min(col + block[1], x.shape()[1]);
  const bool is_ragged = end_row < row + block[0] || end_col < col + block[1];
  if (mutant == Mutant::whole_blocks_only && is_ragged) return 0;
  if (mutant == Mutant::first_row_only) end_row = row + 1;
  if (mutant == Mutant::skips_last_row) --end_row;
  if (mutant == Mutant::skips_last_column) --end_col;
  float amax = 0;
  for (int64_t t = row; t < end_row; ++t) {
    for (int64_t h = col; h < end_col; ++h) {
      const float magnitude = std::fabs(reference::element_of(x, t, h));
      if (std::isnan(magnitude) && mutant == Mutant::nan_poisons) return magnitude;
      if (magnitude > amax) amax = magnitude;
    }
  }
  return amax;
}

reference::Scale mutated_scale(float amax, DType format, bool round_sf, Mutant mutant) {
  reference::Scale scale = reference::scale_of(amax, format, round_sf);
  const float largest = format == DType::e4m3 ? 448.0F : 6.0F;
  if (mutant == Mutant::nan_poisons && std::isnan(amax)) scale.sf = amax;
  if (mutant == Mutant::no_floor && amax > 0 && amax < 1e-4F) scale.sf = amax / largest;
  if (mutant == Mutant::inverse_of_scale && !round_sf) scale.inv = 1.0F / scale.sf;
  if (mutant == Mutant::infinity_keeps_values && std::isinf(amax)) scale.inv = 0x1p-126F;
  return scale;
}

uint32_t mutated_code(DType format, float value, Mutant mutant) {
  const auto wide = static_cast<double>(value);
  const uint32_t code = reference::encode(format, wide);
  const uint32_t magnitude = code & (format == DType::e4m3 ? 0x7FU : 7U);
  const bool grew = magnitude > 0 && !std::isnan(value) &&
                    std::fabs(reference::decode(format, code)) > std::fabs(wide);
  return mutant == Mutant::truncates && grew ? code - 1 : code;
}

/// Cases that the slow copies of the references get through quickly.
std::vector<OpCase> small(std::vector<OpCase> cases) {
  constexpr int64_t kElements = 60'000;
  std::erase_if(cases, [](const OpCase& test) { return test.inputs.at("x").size() > kElements; });
  return cases;
}

HostTensors mutated(const HostTensors& inputs, const Params& params, Mutant mutant) {
  const HostTensor& x = inputs.at("x");
  const DType format = dtype_from_name(std::get<std::string>(params.at("format"))).value();
  const auto sizes = std::get<std::vector<int64_t>>(params.at("block_size"));
  Dims block = {sizes[0], sizes[1]};
  if (mutant == Mutant::swapped_blocks) std::swap(block[0], block[1]);
  const bool round_sf = std::get<bool>(params.at("round_sf"));
  const auto layout = reference::sf_layout_of(std::get<std::string>(params.at("sf_layout")));
  const int64_t tokens = x.shape()[0], hidden = x.shape()[1];
  const int64_t rows = (tokens + block[0] - 1) / block[0];
  const int64_t cols = (hidden + block[1] - 1) / block[1];
  HostTensor out = reference::make_codes(format, tokens, hidden);
  HostTensor out_sf = reference::make_scales(layout, rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t row = i / cols * block[0], col = i % cols * block[1];
    const float amax = mutated_amax(x, row, col, block, mutant);
    const reference::Scale scale = mutated_scale(amax, format, round_sf, mutant);
    reference::store_scale(out_sf, layout, i / cols, i % cols, scale);
    for (int64_t t = row; t < std::min(row + block[0], tokens); ++t) {
      for (int64_t h = col; h < std::min(col + block[1], hidden); ++h) {
        const float value = reference::element_of(x, t, h) * scale.inv;
        reference::store_code(out, t, h, mutated_code(format, value, mutant));
      }
    }
  }
  return {{"out", out}, {"out_sf", out_sf}};
}

}  // namespace

TEST_CASE("the per_block_cast tests catch every mutant", "[per_block_cast][mutants][slow]") {
  const auto cases = small(per_block_cast_cases());
  check_mutants("per_block_cast", cases, Mutant::infinity_keeps_values, mutated);
  const auto of_scales = [](const HostTensors& in, const Params& params, Mutant mutant) {
    return HostTensors{{"out_sf", mutated(in, params, mutant).at("out_sf")}};
  };
  check_mutants("per_block_cast_with_sf_only", cases, Mutant::swapped_blocks, of_scales);
}

namespace {

enum class GivenMutant { none, divides, swapped_blocks };

HostTensors mutated_given(const HostTensors& inputs, const Params& params, GivenMutant mutant) {
  const HostTensor &x = inputs.at("x"), &sf = inputs.at("sf");
  const DType format = dtype_from_name(std::get<std::string>(params.at("format"))).value();
  auto block = std::get<std::vector<int64_t>>(params.at("block_size"));
  if (mutant == GivenMutant::swapped_blocks) std::swap(block[0], block[1]);
  const int64_t tokens = x.shape()[0], hidden = x.shape()[1];
  HostTensor out = reference::make_codes(format, tokens, hidden);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < hidden; ++h) {
      const float scale = reference::load_scale(sf, reference::SfLayout::row_major,
                                                std::min(t / block[0], sf.shape()[0] - 1),
                                                std::min(h / block[1], sf.shape()[1] - 1));
      const float value = reference::element_of(x, t, h);
      const float scaled = mutant == GivenMutant::divides ? value / scale : value * (1.0F / scale);
      reference::store_code(out, t, h, reference::encode(format, static_cast<double>(scaled)));
    }
  }
  return {{"out", out}};
}

}  // namespace

TEST_CASE("the per_block_cast_with_precomputed_sf tests catch every mutant",
          "[per_block_cast][mutants][slow]") {
  check_mutants("per_block_cast_with_precomputed_sf",
                small(per_block_cast_with_precomputed_sf_cases()), GivenMutant::swapped_blocks,
                mutated_given);
}

TEST_CASE("per_block_cast explains wrong arguments", "[per_block_cast][errors]") {
  const std::string op = GENERATE("per_block_cast", "per_block_cast_with_sf_only");
  const auto told = [&](const HostTensor& x, std::vector<int64_t> block,
                        const std::string& layout = "row_major") {
    return outputs_error(
        op, {{"x", x}},
        {{"format", std::string("e2m1")}, {"block_size", std::move(block)}, {"sf_layout", layout}});
  };
  const HostTensor x(DType::bf16, {40, 192});
  CHECK(told(x, {32, 128}) == "no error");
  CHECK(told(HostTensor(DType::f16, {40, 192}), {32, 32}) ==
        "tessera: " + op +
            ": argument 'x' has the wrong dtype\n"
            "  expected  bf16|f32\n"
            "  got       f16[40, 192] on cpu");
  CHECK(told(HostTensor(DType::bf16, {40, 96}), {32, 32}) ==
        "tessera: " + op +
            ": argument 'x' has the wrong shape\n"
            "  expected  H % 64 = 0\n"
            "  got       H = 96 from x dim 1");
  CHECK(told(HostTensor(DType::bf16, {40, 64}, {128, 1}), {32, 32}) ==
        "tessera: " + op +
            ": argument 'x' has the wrong strides\n"
            "  expected  row-major strides [64, 1]\n"
            "  got       bf16[40, 64], strides [128, 1] on cpu");
  CHECK(told(x, {64, 128}) == "tessera: " + op +
                                  ": parameter 'block_size' has a wrong value\n"
                                  "  expected  tuple of {32, 128}\n"
                                  "  got       64,128");
  CHECK(told(x, {128}) == "tessera: " + op +
                              ": parameter 'block_size' has a wrong value\n"
                              "  expected  rows,columns, each from 1 to 2^30\n"
                              "  got       128");
  CHECK(told(x, {32, 32}, "packed_ue8m0") ==
        "tessera: " + op +
            ": argument 'sf_layout': packed_ue8m0 scales are powers of two\n"
            "  expected  round_sf where sf_layout = packed_ue8m0\n"
            "  got       round_sf = false, sf_layout = packed_ue8m0");
}

TEST_CASE("per_block_cast_with_precomputed_sf explains wrong scales", "[per_block_cast][errors]") {
  const HostTensor x(DType::f32, {40, 192});
  const auto told = [&](HostTensor sf) {
    return outputs_error(
        "per_block_cast_with_precomputed_sf", {{"x", x}, {"sf", std::move(sf)}},
        {{"format", std::string("e4m3")}, {"block_size", std::vector<int64_t>{32, 32}}});
  };
  CHECK(told(HostTensor(DType::f32, {2, 6})) == "no error");
  CHECK(told(HostTensor(DType::f32, {2, 6}, {8, 1})) == "no error");
  CHECK(told(HostTensor(DType::f32, {2, 6}, {1, 2})) ==
        "tessera: per_block_cast_with_precomputed_sf: argument 'sf' has the wrong strides\n"
        "  expected  last stride 1\n"
        "  got       f32[2, 6], strides [1, 2] on cpu");
  CHECK(told(HostTensor(DType::i32, {2, 2})) ==
        "tessera: per_block_cast_with_precomputed_sf: argument 'sf' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       i32[2, 2] on cpu");
  CHECK(
      told(HostTensor(DType::f32, {2, 5})) ==
      "tessera: per_block_cast_with_precomputed_sf: argument 'sf' has the wrong shape\n"
      "  expected  f32[2, 6]   (rows of sf = 2 = ceil(T / 32); columns of sf = 6 = ceil(H / 32))\n"
      "  got       f32[2, 5] on cpu");
}

TEST_CASE("per_block_cast explains a wrong output", "[per_block_cast][errors]") {
  const HostTensor x(DType::bf16, {40, 192}), out_sf(DType::f32, {2, 2});
  const auto told = [&](const HostTensor& out) {
    return run_error(
        "per_block_cast", {{"x", x.view()}, {"out", out.view()}, {"out_sf", out_sf.view()}},
        {{"format", std::string("e2m1")}, {"block_size", std::vector<int64_t>{32, 128}}});
  };
  CHECK(told(HostTensor(DType::i8, {40, 96})) == "no error");
  CHECK(told(HostTensor(DType::i8, {40, 192})) ==
        "tessera: per_block_cast: argument 'out' has the wrong shape\n"
        "  expected  i8[40, 96]   (T = 40 from x dim 0; H/2 = 96 = two e2m1 codes per byte)\n"
        "  got       i8[40, 192] on cpu");
}
