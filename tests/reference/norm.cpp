#include "tests/reference/norm.h"

#include <cmath>
#include <utility>
#include <vector>

#include "tests/reference/lane_sum.h"
#include "tests/reference/numeric.h"
#include "tests/reference/per_token_cast.h"

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;

const HostTensor* given(const HostTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

float number(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

void set(HostTensor& tensor, int64_t element, float value) {
  tensor.set_bits(element, encode(tensor.dtype(), static_cast<double>(value)));
}

int64_t columns_of(const HostTensor& x) {
  return x.shape()[x.shape().rank - 1];
}

Dims tokens_of(const HostTensor& x) {
  Dims shape;
  for (int i = 0; i + 1 < x.shape().rank; ++i) shape.push_back(x.shape()[i]);
  return shape;
}

std::vector<float> row_of(const HostTensor& x, int64_t row) {
  const int64_t hidden = columns_of(x);
  std::vector<float> values;
  for (int64_t i = 0; i < hidden; ++i) values.push_back(number(x, row * hidden + i));
  return values;
}

}  // namespace

HostTensors norm_fwd(const HostTensors& tensors, const NormOptions& o) {
  const HostTensor& x = tensors.at("x");
  const HostTensor *weight = given(tensors, "weight"), *residual = given(tensors, "residual");
  const int64_t hidden = columns_of(x), tokens = x.size() / hidden;
  const auto eps = static_cast<float>(o.eps), out_scale = static_cast<float>(o.out_scale);
  HostTensor out(x.dtype(), x.shape()), sum(x.dtype(), x.shape());
  HostTensor rstd(DType::f32, tokens_of(x));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = t * hidden; i < (t + 1) * hidden; ++i) {
      set(sum, i, residual == nullptr ? number(x, i) : number(x, i) + number(*residual, i));
    }
    const std::vector<float> n = row_of(sum, t);
    const float mean = lane_sum(n, n) / static_cast<float>(hidden);
    const float r = 1.0F / std::sqrt(mean + eps);
    set(rstd, t, r);
    for (int64_t i = 0; i < hidden; ++i) {
      const float w = weight == nullptr ? out_scale : number(*weight, i) * out_scale;
      const float normed = n[static_cast<size_t>(i)] * r;
      set(out, t * hidden + i, normed * w);
    }
  }
  HostTensors result;
  result["out"] = std::move(out);
  if (residual != nullptr) result["residual_out"] = std::move(sum);
  if (o.save_rstd) result["rstd"] = std::move(rstd);
  return result;
}

HostTensors norm_fwd_and_per_token_cast(const HostTensors& tensors, const NormOptions& o) {
  HostTensors result = norm_fwd(tensors, o);
  const HostTensor z = result.at("out");
  CastOptions options;
  options.num_per_channels = o.num_per_channels;
  options.sf_layout = sf_layout_of(o.sf_layout);
  options.round_sf = o.round_sf;
  CastResult cast = per_token_cast(z, nullptr, options);
  result["out"] = std::move(cast.out);
  result["out_sf"] = std::move(cast.out_sf);
  if (o.save_bf16) {
    HostTensor rounded(DType::bf16, z.shape());
    for (int64_t i = 0; i < z.size(); ++i) set(rounded, i, number(z, i));
    result["out_bf16"] = std::move(rounded);
  }
  if (const HostTensor* before = given(tensors, "mega_moe_sf")) {
    HostTensor mega = *before;
    const int64_t tokens = z.shape()[0], hidden = z.shape()[1], block = o.mega_moe_block_m;
    const int64_t padded = (block + 127) / 128 * 128;
    options.sf_layout = SfLayout::row_major;
    const CastResult plain = per_token_cast(z, nullptr, options);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t i = t % block;
      const int64_t row = t / block * padded + i / 128 * 128 + i % 32 * 4 + i % 128 / 32;
      for (int64_t group = 0; group < hidden / 32; ++group) {
        const int64_t word = row * (hidden / 128) + group / 4;
        const uint64_t exponent = plain.out_sf.bits(t * (hidden / 32) + group) >> 23;
        const uint64_t shift = static_cast<uint64_t>(group % 4) * 8;
        mega.set_bits(word, (mega.bits(word) & ~(uint64_t{255} << shift)) | exponent << shift);
      }
    }
    result["mega_moe_sf"] = std::move(mega);
  }
  return result;
}

HostTensors norm_bwd(const HostTensors& tensors, const NormOptions& o) {
  constexpr int64_t kRuns = 264;
  const HostTensor &x = tensors.at("x"), &grad_out = tensors.at("grad_out");
  const HostTensor* weight = given(tensors, "weight");
  const HostTensor* residual = given(tensors, "grad_residual_out");
  const int64_t hidden = columns_of(x), tokens = x.size() / hidden;
  const int64_t of_run = (tokens + kRuns - 1) / kRuns;
  const auto out_scale = static_cast<float>(o.out_scale);
  const auto columns = static_cast<size_t>(hidden);
  HostTensor grad_x(x.dtype(), x.shape());
  std::vector<float> run(columns), total(columns);
  for (int64_t t = 0; t < tokens; ++t) {
    const float r = number(tensors.at("rstd"), t);
    std::vector<float> xh(columns), g(columns), q(columns);
    for (size_t i = 0; i < columns; ++i) {
      const int64_t element = t * hidden + static_cast<int64_t>(i);
      xh[i] = number(x, element) * r;
      g[i] = number(grad_out, element) * out_scale;
      q[i] = weight == nullptr ? g[i] : g[i] * number(*weight, static_cast<int64_t>(i));
    }
    const float mean = lane_sum(xh, q) / static_cast<float>(hidden);
    for (size_t i = 0; i < columns; ++i) {
      const int64_t element = t * hidden + static_cast<int64_t>(i);
      const float product = xh[i] * mean;
      float grad = (q[i] - product) * r;
      if (residual != nullptr) grad = grad + number(*residual, element);
      set(grad_x, element, grad);
      run[i] = std::fma(xh[i], g[i], run[i]);
    }
    if ((t + 1) % of_run != 0 && t + 1 != tokens) continue;
    for (size_t i = 0; i < columns; ++i) total[i] = total[i] + run[i];
    run.assign(columns, 0.0F);
  }
  HostTensors result;
  result["grad_x"] = std::move(grad_x);
  if (weight == nullptr) return result;
  const HostTensor* before = given(tensors, "grad_weight");
  HostTensor grad_weight = before == nullptr ? HostTensor(DType::f32, {hidden}) : *before;
  for (int64_t i = 0; i < hidden && tokens > 0; ++i) {
    const float old = before == nullptr ? 0.0F : number(*before, i);
    set(grad_weight, i, old + total[static_cast<size_t>(i)]);
  }
  if (before == nullptr && tokens == 0) grad_weight.fill_bytes(std::byte{0});
  result["grad_weight"] = std::move(grad_weight);
  return result;
}

}  // namespace tessera::reference
