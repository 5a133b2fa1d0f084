// The op tests are shown to fail: each mutant is a copy of a reference with one mistake that a
// kernel could make, and the cases and comparisons of the op tests must catch every one. The copy
// without a mistake must pass.

#include "tests/support/ops/mutants.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/reference/numeric.h"
#include "tests/reference/per_token_cast.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

// ---- topk_gate

enum class TopkMutant { none, tie_to_larger, nan_first, minus_zero_below, repeats_minus_infinity };

HostTensors mutated_topk(const HostTensors& inputs, const Params& params, TopkMutant mutant) {
  const auto num_topk = std::get<int64_t>(params.at("num_topk"));
  const HostTensor& scores = inputs.at("scores");
  const int64_t num_tokens = scores.shape()[0], num_experts = scores.shape()[1];
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  HostTensor topk_idx(DType::i64, {num_tokens, num_topk});
  for (int64_t t = 0; t < num_tokens; ++t) {
    std::vector<double> keys;
    for (int64_t e = 0; e < num_experts; ++e) {
      double key = scores.value(t * num_experts + e);
      if (std::isnan(key)) key = mutant == TopkMutant::nan_first ? kInfinity : -kInfinity;
      if (mutant == TopkMutant::minus_zero_below && key == 0 && std::signbit(key)) key = -0x1p-160;
      keys.push_back(key);
    }
    std::vector<int64_t> order(keys.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const double left = keys[static_cast<size_t>(a)], right = keys[static_cast<size_t>(b)];
      if (left != right) return left > right;
      return mutant == TopkMutant::tie_to_larger ? a > b : a < b;
    });
    for (int64_t k = 0; k < num_topk; ++k) {
      int64_t expert = order[static_cast<size_t>(k)];
      if (mutant == TopkMutant::repeats_minus_infinity &&
          keys[static_cast<size_t>(expert)] == -kInfinity) {
        expert = 0;
      }
      topk_idx.set_bits(t * num_topk + k, static_cast<uint64_t>(expert));
    }
  }
  return {{"topk_idx", topk_idx}};
}

// ---- per_token_cast

enum class CastMutant {
  none,
  truncates,
  ties_away,
  nan_poisons,
  nan_saturates,
  loses_minus_zero,
  skips_last_of_group,
  whole_groups_only,
  no_floor,
  multiplies_reciprocal,
  inverse_of_scale,
  divides_by_scale,
  power_goes_up,
  rounds_scale_to_nearest,
  infinity_keeps_values,
  floor_on_scale,  // of e4m3 alone
};

float mutated_amax(const HostTensor& x, int64_t row, int64_t begin, int64_t end, int64_t group,
                   CastMutant mutant) {
  if (mutant == CastMutant::skips_last_of_group) --end;
  if (mutant == CastMutant::whole_groups_only && end - begin < group) return 0;
  float amax = 0;
  for (int64_t h = begin; h < end; ++h) {
    const float magnitude = std::fabs(reference::element_of(x, row, h));
    if (std::isnan(magnitude) && mutant == CastMutant::nan_poisons) return magnitude;
    if (magnitude > amax) amax = magnitude;
  }
  return amax;
}

reference::Scale mutated_scale(float amax, DType format, bool round_sf, CastMutant mutant) {
  const float largest = format == DType::e4m3 ? 448.0F : 6.0F;
  reference::Scale scale = reference::scale_of(amax, format, round_sf);
  if (mutant == CastMutant::nan_poisons && std::isnan(amax)) scale.sf = amax;
  if (mutant == CastMutant::floor_on_scale && !round_sf && format == DType::e4m3 && amax < 1e-4F) {
    scale.sf = 1e-4F;
  }
  if (mutant == CastMutant::no_floor && amax > 0) {
    scale = {amax / largest, largest / amax, scale.exponent};
    if (round_sf) scale = reference::scale_of(std::max(amax, 1e-30F), format, true);
    if (round_sf && amax < 1e-4F) scale.sf = amax / largest;
  }
  if (mutant == CastMutant::multiplies_reciprocal && !round_sf) {
    scale.sf = std::max(amax, format == DType::e4m3 ? 1e-4F : 0x1.8p-124F) * (1.0F / largest);
  }
  if (mutant == CastMutant::inverse_of_scale && !round_sf) scale.inv = 1.0F / scale.sf;
  const bool is_power = amax == largest || amax == 2 * largest;
  if (mutant == CastMutant::power_goes_up && round_sf && is_power) {
    scale = {2 * scale.sf, scale.inv / 2, static_cast<uint8_t>(scale.exponent + 1)};
  }
  if (mutant == CastMutant::rounds_scale_to_nearest && round_sf &&
      amax / largest < 0.75F * scale.sf) {
    scale = {scale.sf / 2, scale.inv * 2, static_cast<uint8_t>(scale.exponent - 1)};
  }
  if (mutant == CastMutant::infinity_keeps_values && std::isinf(amax)) scale.inv = 0x1p-126F;
  return scale;
}

uint32_t mutated_code(DType format, float value, CastMutant mutant) {
  const uint32_t sign = format == DType::e4m3 ? 0x80 : 8;
  const auto wide = static_cast<double>(value);
  uint32_t code = reference::encode(format, wide);
  const auto distance = [&](uint32_t c) { return std::fabs(reference::decode(format, c) - wide); };
  const bool is_number = !std::isnan(value) && (code & (sign - 1)) != 0;
  if (mutant == CastMutant::nan_saturates && std::isnan(value)) {
    return reference::max_finite_code(format) - (format == DType::e2m1 ? 1 : 0);
  }
  if (mutant == CastMutant::loses_minus_zero && code == sign) return 0;
  if (mutant == CastMutant::truncates && is_number &&
      std::fabs(reference::decode(format, code)) > std::fabs(wide)) {
    return code - 1;
  }
  const bool can_grow =
      !std::isnan(value) && (code & (sign - 1)) < reference::max_finite_code(format);
  if (mutant == CastMutant::ties_away && can_grow && distance(code + 1) == distance(code)) ++code;
  return code;
}

HostTensors mutated_cast(const HostTensors& inputs, const Params& params, CastMutant mutant) {
  const HostTensor& x = inputs.at("x");
  const DType format = dtype_from_name(std::get<std::string>(params.at("format"))).value();
  const auto group = std::get<int64_t>(params.at("num_per_channels"));
  const bool round_sf = std::get<bool>(params.at("round_sf"));
  const int64_t num_tokens = x.shape()[0], hidden = x.shape()[1];
  const int64_t num_groups = (hidden + group - 1) / group;
  const auto layout = reference::SfLayout::row_major;
  HostTensor out(format == DType::e2m1 ? DType::i8 : format,
                 {num_tokens, format == DType::e2m1 ? hidden / 2 : hidden});
  HostTensor out_sf = reference::make_scales(layout, num_tokens, num_groups);
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t g = 0; g < num_groups; ++g) {
      const int64_t begin = g * group, end = std::min(begin + group, hidden);
      const float amax = mutated_amax(x, t, begin, end, group, mutant);
      const reference::Scale scale = mutated_scale(amax, format, round_sf, mutant);
      reference::store_scale(out_sf, layout, t, g, scale);
      for (int64_t h = begin; h < end; ++h) {
        const float value = reference::element_of(x, t, h);
        const bool divides = mutant == CastMutant::divides_by_scale && !round_sf;
        const float scaled = divides ? value / scale.sf : value * scale.inv;
        reference::store_code(out, t, h, mutated_code(format, scaled, mutant));
      }
    }
  }
  return {{"out", out}, {"out_sf", out_sf}};
}

// ---- the form that the copy above leaves out: quantised input

enum class FormMutant { none, second_order, wrong_input_block };

HostTensors mutated_form(const HostTensors& inputs, const Params& params, FormMutant mutant) {
  const auto x_sf = inputs.find("x_sf");
  if (x_sf == inputs.end() || mutant == FormMutant::none) {
    return reference::runner("per_token_cast")(inputs, params);
  }
  const auto block = std::get<std::vector<int64_t>>(params.at("x_block_size"));
  if (mutant == FormMutant::wrong_input_block) {
    Params other = params;
    other["x_block_size"] = std::vector<int64_t>{block[0], block[1] * 2};
    return reference::runner("per_token_cast")(inputs, other);
  }
  const HostTensor& x = inputs.at("x");  // dequantise first: (code * s) * inverse
  const auto layout = reference::sf_layout_of(std::get<std::string>(params.at("x_sf_layout")));
  HostTensor wide(DType::f32, {x.shape()[0], reference::hidden_of(x)});
  for (int64_t i = 0; i < wide.size(); ++i) {
    const int64_t row = i / wide.shape()[1], col = i % wide.shape()[1];
    const float s = reference::load_scale(x_sf->second, layout, row / block[0], col / block[1]);
    wide.set_bits(i, reference::bits_of(reference::element_of(x, row, col) * s));
  }
  return reference::runner("per_token_cast")({{"x", wide}}, params);
}

std::vector<OpCase> plain_cast_cases() {
  std::vector<OpCase> cases;
  for (OpCase& test : per_token_cast_cases()) {
    const bool is_row_major = std::get<std::string>(test.params.at("sf_layout")) == "row_major";
    if (is_row_major && test.inputs.count("x_sf") == 0) cases.push_back(std::move(test));
  }
  return cases;
}

}  // namespace

TEST_CASE("the transpose tests catch NaN bits that are not kept", "[mutants][slow]") {
  const std::string op = GENERATE("transpose", "batched_transpose");
  CHECK(is_caught(op, cases_of(op), spoiled(op, [](const HostTensors&, HostTensors& outputs) {
                    HostTensor& out = outputs.at("out");
                    for (int64_t i = 0; i < out.size() && out.dtype() == DType::f32; ++i) {
                      if (std::isnan(out.value(i)))
                        out.set_bits(i, reference::nan_code(DType::f32));
                    }
                  })));
}

TEST_CASE("the topk_gate tests catch every mutant", "[mutants]") {
  check_mutants("topk_gate", topk_gate_cases(), TopkMutant::repeats_minus_infinity, mutated_topk);
}

TEST_CASE("the per_token_cast tests catch every mutant of the arithmetic", "[mutants][slow]") {
  const std::string format = GENERATE("e4m3", "e2m1");
  std::vector<OpCase> cases;
  for (OpCase& test : plain_cast_cases()) {
    if (std::get<std::string>(test.params.at("format")) == format) cases.push_back(std::move(test));
  }
  const bool has_floor = format == "e4m3";
  check_mutants("per_token_cast", cases,
                has_floor ? CastMutant::floor_on_scale : CastMutant::infinity_keeps_values,
                mutated_cast);
}

TEST_CASE("the per_token_cast tests catch every mutant of quantised input", "[mutants][slow]") {
  check_mutants("per_token_cast", per_token_cast_cases(), FormMutant::wrong_input_block,
                mutated_form);
}
