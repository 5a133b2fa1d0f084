#include "tests/reference/swiglu.h"

#include <cmath>

#include "tests/reference/numeric.h"

namespace tessera::reference {

namespace {

/// A value of a row without a weight: zeros keep their signs, all else is +0.
float or_zero(float value) {
  return value == 0.0F ? value : 0.0F;
}

}  // namespace

float swiglu(float gate, float up, std::optional<float> clamp, std::optional<float> weight) {
  if (clamp) {  // every comparison is false for a NaN, which stays
    if (gate > *clamp) gate = *clamp;
    if (up > *clamp) up = *clamp;
    if (up < -*clamp) up = -*clamp;
  }
  const auto exponential = static_cast<float>(std::exp(-static_cast<double>(gate)));
  const float denominator = 1.0F + exponential;
  const float activated = gate / denominator;
  const float product = activated * up;
  return weight ? product * *weight : product;
}

SwigluResult swiglu_forward_and_per_token_cast(const test::HostTensor& x,
                                               const SwigluTensors& tensors,
                                               const SwigluOptions& options) {
  const int64_t num_rows = x.shape()[0], hidden = x.shape()[1] / 2;
  const int64_t group = options.num_per_channels;
  const int64_t num_groups = (hidden + group - 1) / group;
  SwigluResult result;
  CastResult& cast = result.cast;
  cast.out = test::HostTensor(DType::e4m3, {num_rows, hidden});
  cast.out.fill_bytes(std::byte{0});
  cast.out_sf = make_scales(options.sf_layout, num_rows, num_groups);
  const float floor = options.sf_clamp_min.value_or(1e-4F);

  for (int64_t row = 0; row < num_rows; ++row) {
    if (tensors.pos_to_expert != nullptr && tensors.pos_to_expert->value(row) < 0) continue;
    std::optional<float> weight;
    bool is_padding = false;
    if (tensors.topk_weights != nullptr) {
      const auto slot = static_cast<int64_t>(tensors.pos_to_token_topk->value(row));
      const bool inside = slot >= 0 && slot < tensors.topk_weights->size();
      is_padding = !inside;
      weight = inside ? static_cast<float>(tensors.topk_weights->value(slot)) : 0.0F;
    }
    const auto gate = [&](int64_t h) { return static_cast<float>(x.value(row * 2 * hidden + h)); };
    const auto up = [&](int64_t h) {
      return static_cast<float>(x.value(row * 2 * hidden + hidden + h));
    };
    for (int64_t h = 0; h < hidden && options.clamp_value; ++h) {
      const float c = *options.clamp_value;
      result.clamped_count[0] += gate(h) > c ? 1 : 0;
      result.clamped_count[1] += up(h) > c ? 1 : 0;
      result.clamped_count[2] += up(h) < -c ? 1 : 0;
    }
    for (int64_t g = 0; g < num_groups; ++g) {
      const int64_t begin = g * group, end = std::min(begin + group, hidden);
      std::vector<float> values;
      float amax = 0;
      for (int64_t h = begin; h < end; ++h) {
        const float value = swiglu(gate(h), up(h), options.clamp_value, weight);
        values.push_back(is_padding ? or_zero(value) : value);
        if (std::fabs(values.back()) > amax) amax = std::fabs(values.back());
      }
      const Scale scale = scale_of(amax, 448.0F, floor, options.round_sf);
      store_scale(cast.out_sf, options.sf_layout, row, g, scale);
      for (int64_t h = begin; h < end; ++h) {
        const float value = values[static_cast<size_t>(h - begin)] * scale.inv;
        store_code(cast.out, row, h, encode(DType::e4m3, static_cast<double>(value)));
      }
    }
  }
  return result;
}

test::HostTensor swiglu_rows(const test::HostTensor& x, std::optional<float> clamp) {
  const int64_t num_rows = x.shape()[0], hidden = x.shape()[1] / 2;
  test::HostTensor rows(DType::bf16, {num_rows, hidden});
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t gate = i / hidden * 2 * hidden + i % hidden;
    const float value = swiglu(static_cast<float>(x.value(gate)),
                               static_cast<float>(x.value(gate + hidden)), clamp, {});
    rows.set_bits(i, encode(DType::bf16, static_cast<double>(value)));
  }
  return rows;
}

SwigluBackwardResult swiglu_backward(const SwigluBackwardInputs& in, int64_t num_per_channels,
                                     bool round_sf, std::optional<float> clamp) {
  const int64_t num_rows = in.x.shape()[0], hidden = in.x.shape()[1] / 2;
  const int64_t groups = 2 * hidden / num_per_channels, num_entries = in.weight.size();
  SwigluBackwardResult result;
  result.out = test::HostTensor(DType::bf16, {num_rows, hidden});
  result.grad_x = test::HostTensor(DType::bf16, {num_rows, 2 * hidden});
  result.grad_weight = test::HostTensor(DType::f32, in.weight.shape());
  result.grad_weight.fill_bytes(std::byte{0});
  test::HostTensor wide(DType::f32, {num_rows, 2 * hidden});  // gradients before any cast

  const auto rounded = [](float value) { return encode(DType::bf16, static_cast<double>(value)); };
  for (int64_t row = 0; row < num_rows; ++row) {
    const auto slot = static_cast<int64_t>(in.pos_to_token_topk.value(row));
    const bool has_weight = slot >= 0 && slot < num_entries;
    const float w = has_weight ? static_cast<float>(in.weight.value(slot)) : 0.0F;
    const auto real = [&](int64_t column) {
      const int64_t scale = row * groups + column / num_per_channels;
      return static_cast<float>(in.x.value(row * 2 * hidden + column)) *
             static_cast<float>(in.x_sf.value(scale));
    };
    double sum = 0;
    for (int64_t h = 0; h < hidden; ++h) {
      float x = real(h), y = real(hidden + h);
      const float g = static_cast<float>(in.grad_out.value(row * hidden + h));
      const bool stops_x = clamp && x > *clamp;
      const bool stops_y = clamp && (y > *clamp || y < -*clamp);
      if (stops_x) x = *clamp;
      if (stops_y) y = y > *clamp ? *clamp : -*clamp;
      const float t = 1.0F + static_cast<float>(std::exp(-static_cast<double>(x)));
      const float quotient = x / t, act = quotient * y, s = 1.0F / t;
      const float weighted = g * w, scaled = weighted * s;
      const float slope = std::fma(x, 1.0F - s, 1.0F), by_y = scaled * y;
      const auto selected = [&](float value) { return has_weight ? value : or_zero(value); };
      const float dx = selected(stops_x ? 0.0F : by_y * slope);
      const float dy = selected(stops_y ? 0.0F : scaled * x);
      const float product = g * act;
      sum += static_cast<double>(product);
      result.out.set_bits(row * hidden + h, rounded(selected(act * w)));
      const int64_t at = row * 2 * hidden + h;
      result.grad_x.set_bits(at, rounded(dx));
      result.grad_x.set_bits(at + hidden, rounded(dy));
      wide.set_bits(at, bits_of(dx));
      wide.set_bits(at + hidden, bits_of(dy));
    }
    if (has_weight && static_cast<int64_t>(in.token_topk_to_pos.value(slot)) == row) {
      result.grad_weight.set_bits(slot, encode(DType::f32, sum));
    }
  }
  CastOptions options;
  options.num_per_channels = num_per_channels;
  options.round_sf = round_sf;
  result.grad_x_cast = per_token_cast(wide, nullptr, options);
  return result;
}

}  // namespace tessera::reference
