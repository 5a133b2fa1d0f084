#include "tests/reference/swiglu.h"

#include <cmath>

#include "tests/reference/numeric.h"

namespace tessera::reference {

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
    if (tensors.topk_weights != nullptr) {
      const auto slot = static_cast<int64_t>(tensors.pos_to_token_topk->value(row));
      const bool inside = slot >= 0 && slot < tensors.topk_weights->size();
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
        values.push_back(swiglu(gate(h), up(h), options.clamp_value, weight));
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

}  // namespace tessera::reference
