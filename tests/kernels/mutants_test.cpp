// The op tests are shown to fail: each mutant is a copy of a reference with one mistake that a
// kernel could make, and the cases and comparisons of the op tests must catch every one. The copy
// without a mistake must pass.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/reference/numeric.h"
#include "tests/reference/per_token_cast.h"
#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

bool is_caught(const std::string& op, const std::vector<OpCase>& cases,
               const reference::Runner& mutant) {
  return !run_cases(op, cases, mutant).failures.empty();
}

// ---- transpose

enum class TransposeMutant { none, ignores_pitch, last_column, swapped_tile, quiets_nan, batch };

HostTensors mutated_transpose(const HostTensors& inputs, TransposeMutant mutant) {
  const HostTensor& x = inputs.at("x");
  const int rank = x.shape().rank;
  const int64_t num_batches = rank == 3 ? x.shape()[0] : 1;
  const int64_t num_rows = x.shape()[rank - 2], num_cols = x.shape()[rank - 1];
  Dims shape = x.shape();
  std::swap(shape[rank - 2], shape[rank - 1]);
  TensorView view = x.view();
  if (mutant == TransposeMutant::ignores_pitch) view.strides = row_major_strides(view.shape);

  HostTensor out(x.dtype(), shape);
  for (int64_t b = 0; b < num_batches; ++b) {
    for (int64_t r = 0; r < num_rows; ++r) {
      for (int64_t c = 0; c < num_cols; ++c) {
        int64_t from_batch = b, from_row = r, from_col = c;
        if (mutant == TransposeMutant::last_column && c == num_cols - 1) from_col = 0;
        if (mutant == TransposeMutant::swapped_tile && num_rows > 8) from_row = r < 8 ? r ^ 1 : r;
        if (mutant == TransposeMutant::batch) from_batch = 0;
        uint64_t bits =
            element_bits(view, (from_batch * num_rows + from_row) * num_cols + from_col);
        if (mutant == TransposeMutant::quiets_nan && x.dtype() == DType::f32 &&
            std::isnan(value_of(DType::f32, bits))) {
          bits = reference::nan_code(DType::f32);
        }
        out.set_bits((b * num_cols + c) * num_rows + r, bits);
      }
    }
  }
  return {{"out", out}};
}

// ---- topk_gate

enum class TopkMutant {
  none,
  tie_to_larger,
  nan_first,
  minus_zero_below,
  repeats_minus_infinity,
  by_index,
  off_by_one
};

HostTensors mutated_topk(const HostTensors& inputs, int64_t num_topk, TopkMutant mutant) {
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
    if (mutant == TopkMutant::by_index) std::sort(order.begin(), order.begin() + num_topk);
    for (int64_t k = 0; k < num_topk; ++k) {
      int64_t expert = order[static_cast<size_t>(k)];
      if (mutant == TopkMutant::repeats_minus_infinity &&
          keys[static_cast<size_t>(expert)] == -kInfinity) {
        expert = 0;
      }
      if (mutant == TopkMutant::off_by_one && k == num_topk - 1 && num_topk < num_experts) {
        expert = order[static_cast<size_t>(num_topk)];
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
  floor_on_scale,
  multiplies_reciprocal,
  inverse_of_scale,
  divides_by_scale,
  power_goes_up,
  rounds_scale_to_nearest,
  infinity_keeps_values,
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

// ---- the forms that the copy above leaves out: packing, layouts, quantised input

enum class FormMutant {
  none,
  swapped_nibbles,
  swapped_scale_bytes,
  pitch_without_padding,
  transposed_scales,
  second_order,
  wrong_input_block,
};

HostTensors mutated_form(const HostTensors& inputs, const Params& params, FormMutant mutant) {
  HostTensors outputs = reference::runner("per_token_cast")(inputs, params);
  HostTensor& out = outputs.at("out");
  HostTensor& out_sf = outputs.at("out_sf");
  if (mutant == FormMutant::swapped_nibbles && out.dtype() == DType::i8) {
    for (int64_t i = 0; i < out.size(); ++i) {
      out.set_bits(i, (out.bits(i) & 0xF) << 4 | out.bits(i) >> 4);
    }
  }
  if (mutant == FormMutant::swapped_scale_bytes && out_sf.dtype() == DType::i32) {
    for (int64_t i = 0; i < out_sf.size(); ++i) {
      const uint64_t w = out_sf.bits(i);
      out_sf.set_bits(i, (w & 0xFF) << 24 | (w & 0xFF00) << 8 | (w >> 8 & 0xFF00) | w >> 24);
    }
  }
  const auto copy_with = [&](Dims strides) {
    HostTensor copy(out_sf.dtype(), out_sf.shape(), strides);
    for (int64_t i = 0; i < copy.size(); ++i) copy.set_bits(i, out_sf.bits(i));
    return copy;
  };
  const bool is_col_major = out_sf.size() > 0 && !(out_sf.strides()[1] == 1);
  if (mutant == FormMutant::pitch_without_padding && is_col_major) {
    out_sf = copy_with({1, out_sf.shape()[0]});
  }
  if (mutant == FormMutant::transposed_scales && is_col_major) {
    out_sf = copy_with({out_sf.shape()[1], 1});
  }
  const auto x_sf = inputs.find("x_sf");
  if (x_sf == inputs.end()) return outputs;
  if (mutant == FormMutant::wrong_input_block) {
    Params other = params;
    const auto block = std::get<std::vector<int64_t>>(params.at("x_block_size"));
    other["x_block_size"] = std::vector<int64_t>{block[0], block[1] * 2};
    return reference::runner("per_token_cast")(inputs, other);
  }
  if (mutant == FormMutant::second_order) {  // dequantise first: (code * s) * inverse
    const HostTensor& x = inputs.at("x");
    const auto block = std::get<std::vector<int64_t>>(params.at("x_block_size"));
    const auto layout = reference::sf_layout_of(std::get<std::string>(params.at("x_sf_layout")));
    HostTensor wide(DType::f32, {x.shape()[0], reference::hidden_of(x)});
    for (int64_t i = 0; i < wide.size(); ++i) {
      const int64_t row = i / wide.shape()[1], col = i % wide.shape()[1];
      const float s = reference::load_scale(x_sf->second, layout, row / block[0], col / block[1]);
      wide.set_bits(i, reference::bits_of(reference::element_of(x, row, col) * s));
    }
    return reference::runner("per_token_cast")({{"x", wide}}, params);
  }
  return outputs;
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

TEST_CASE("the transpose tests catch every mutant", "[mutants][slow]") {
  const std::string op = GENERATE("transpose", "batched_transpose");
  const auto cases = op == "transpose" ? transpose_cases() : batched_transpose_cases();
  const auto mutated = [](TransposeMutant mutant) -> reference::Runner {
    return [=](const HostTensors& in, const Params&) { return mutated_transpose(in, mutant); };
  };
  CHECK_FALSE(is_caught(op, cases, mutated(TransposeMutant::none)));
  for (const auto mutant : {TransposeMutant::ignores_pitch, TransposeMutant::last_column,
                            TransposeMutant::swapped_tile, TransposeMutant::quiets_nan}) {
    CAPTURE(op, static_cast<int>(mutant));
    CHECK(is_caught(op, cases, mutated(mutant)));
  }
  if (op == "batched_transpose") CHECK(is_caught(op, cases, mutated(TransposeMutant::batch)));
}

TEST_CASE("the topk_gate tests catch every mutant", "[mutants]") {
  const auto cases = topk_gate_cases();
  const auto mutated = [](TopkMutant mutant) -> reference::Runner {
    return [=](const HostTensors& in, const Params& params) {
      return mutated_topk(in, std::get<int64_t>(params.at("num_topk")), mutant);
    };
  };
  CHECK_FALSE(is_caught("topk_gate", cases, mutated(TopkMutant::none)));
  for (const auto mutant :
       {TopkMutant::tie_to_larger, TopkMutant::nan_first, TopkMutant::minus_zero_below,
        TopkMutant::repeats_minus_infinity, TopkMutant::by_index, TopkMutant::off_by_one}) {
    CAPTURE(static_cast<int>(mutant));
    CHECK(is_caught("topk_gate", cases, mutated(mutant)));
  }
}

TEST_CASE("the per_token_cast tests catch every mutant of the arithmetic", "[mutants][slow]") {
  const std::string format = GENERATE("e4m3", "e2m1");
  std::vector<OpCase> cases;
  for (OpCase& test : plain_cast_cases()) {
    if (std::get<std::string>(test.params.at("format")) == format) cases.push_back(std::move(test));
  }
  const auto mutated = [](CastMutant mutant) -> reference::Runner {
    return [=](const HostTensors& in, const Params& params) {
      return mutated_cast(in, params, mutant);
    };
  };
  CHECK_FALSE(is_caught("per_token_cast", cases, mutated(CastMutant::none)));
  for (const auto mutant :
       {CastMutant::truncates, CastMutant::ties_away, CastMutant::nan_poisons,
        CastMutant::nan_saturates, CastMutant::loses_minus_zero, CastMutant::skips_last_of_group,
        CastMutant::whole_groups_only, CastMutant::no_floor, CastMutant::floor_on_scale,
        CastMutant::multiplies_reciprocal, CastMutant::inverse_of_scale,
        CastMutant::divides_by_scale, CastMutant::power_goes_up,
        CastMutant::rounds_scale_to_nearest, CastMutant::infinity_keeps_values}) {
    if (mutant == CastMutant::floor_on_scale && format == "e2m1") continue;  // no such floor
    CAPTURE(format, static_cast<int>(mutant));
    CHECK(is_caught("per_token_cast", cases, mutated(mutant)));
  }
}

TEST_CASE("the per_token_cast tests catch every mutant of packing and layout", "[mutants][slow]") {
  const auto cases = per_token_cast_cases();
  const auto mutated = [](FormMutant mutant) -> reference::Runner {
    return [=](const HostTensors& in, const Params& params) {
      return mutated_form(in, params, mutant);
    };
  };
  CHECK_FALSE(is_caught("per_token_cast", cases, mutated(FormMutant::none)));
  for (const auto mutant : {FormMutant::swapped_nibbles, FormMutant::swapped_scale_bytes,
                            FormMutant::pitch_without_padding, FormMutant::transposed_scales,
                            FormMutant::second_order, FormMutant::wrong_input_block}) {
    CAPTURE(static_cast<int>(mutant));
    CHECK(is_caught("per_token_cast", cases, mutated(mutant)));
  }
}
