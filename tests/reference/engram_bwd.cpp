#include "tests/reference/engram_bwd.h"

#include <cmath>

namespace tessera::reference {

using test::HostTensor;
using test::HostTensors;

namespace {

float at(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

// The contribution of one token and stream to its row.
struct Score {
  float delta, x, k;
};

Score score_of(const HostTensors& in, int64_t row, float l, double clamp_value, int64_t hidden) {
  const float dot = at(in.at("dot"), row), g = at(in.at("gate_score"), row);
  const float rx = at(in.at("rstd_x"), row), rk = at(in.at("rstd_k"), row);
  const auto s = static_cast<float>(1 / std::sqrt(static_cast<double>(hidden)));
  const auto d = static_cast<float>(hidden);
  const bool is_clamped = std::fabs(dot) * s * rx * rk < static_cast<float>(clamp_value);
  const float slope = l * g * (1 - g) * 0.5F * std::sqrt(s * rx * rk / std::fabs(dot));
  return {is_clamped ? 0 : slope, dot * rx * rx / d, dot * rk * rk / d};
}

}  // namespace

GateGradients engram_gate_bwd(const HostTensors& in, double clamp_value, int64_t partials) {
  const HostTensor &grad_out = in.at("grad_out"), &x = in.at("hidden_states"), &k = in.at("k");
  const HostTensor &v = in.at("v"), &w = in.at("weight_fused");
  const int rank = x.shape().rank;
  const int64_t streams = x.shape()[rank - 2], hidden = x.shape()[rank - 1];
  const int64_t tokens = hidden == 0 ? 0 : v.size() / hidden;
  const int64_t per_partial = (tokens + partials - 1) / partials;
  GateGradients grad{HostTensor(DType::bf16, x.shape()), HostTensor(DType::bf16, x.shape()),
                     HostTensor(DType::bf16, v.shape()),
                     HostTensor(DType::f32, {partials, streams, hidden})};
  for (int64_t i = 0; i < grad.w.size(); ++i) grad.w.set_value(i, 0);
  const auto mask = in.find("image_token_mask");
  for (int64_t t = 0; t < tokens; ++t) {
    if (mask != in.end() && mask->second.bits(t) != 0) {
      for (int64_t i = 0; i < hidden; ++i) grad.v.set_value(t * hidden + i, 0);
      for (int64_t e = t * streams * hidden; e < (t + 1) * streams * hidden; ++e) {
        grad.x.set_value(e, grad_out.value(e));
        grad.k.set_value(e, 0);
      }
      continue;
    }
    for (int64_t i = 0; i < hidden; ++i) {
      float sum = 0;
      for (int64_t h = 0; h < streams; ++h) {
        const int64_t row = t * streams + h;
        sum = std::fma(at(in.at("gate_score"), row), at(grad_out, row * hidden + i), sum);
      }
      grad.v.set_value(t * hidden + i, static_cast<double>(sum));
    }
    for (int64_t h = 0; h < streams; ++h) {
      const int64_t row = t * streams + h;
      double l = 0;
      for (int64_t i = 0; i < hidden; ++i) {
        l += grad_out.value(row * hidden + i) * v.value(t * hidden + i);
      }
      const Score score = score_of(in, row, static_cast<float>(l), clamp_value, hidden);
      for (int64_t i = 0; i < hidden; ++i) {
        const int64_t e = row * hidden + i;
        const int64_t weight = (t / per_partial * streams + h) * hidden + i;
        const float xi = at(x, e), ki = at(k, e), wi = at(w, h * hidden + i);
        const float along_x = std::fma(-xi, score.x, ki * wi);
        const float along_k = std::fma(-ki, score.k, xi * wi);
        grad.x.set_value(e, static_cast<double>(std::fma(score.delta, along_x, at(grad_out, e))));
        grad.k.set_value(e, static_cast<double>(score.delta * along_k));
        const float sum = std::fma(score.delta * xi, ki, at(grad.w, weight));
        grad.w.set_value(weight, static_cast<double>(sum));
      }
    }
  }
  return grad;
}

HostTensors grad_w_reduce(const HostTensors& in) {
  const HostTensor &partial = in.at("grad_w_partial"), &hidden = in.at("weight_hidden");
  const int64_t partials = partial.shape()[0], weights = hidden.size();
  HostTensors out;
  for (const std::string name : {"grad_weight_hidden", "grad_weight_embed"}) {
    const auto given = in.find(name);
    const HostTensor& other =
        name == "grad_weight_hidden" ? in.at("weight_embed") : in.at("weight_hidden");
    HostTensor& grad = out[name] = HostTensor(DType::f32, hidden.shape());
    for (int64_t i = 0; i < weights; ++i) {
      float sum = 0;
      for (int64_t p = 0; p < partials; ++p) sum += at(partial, p * weights + i);
      const float before = given == in.end() ? 0 : at(given->second, i);
      grad.set_value(i, static_cast<double>(std::fma(sum, at(other, i), before)));
    }
  }
  return out;
}

}  // namespace tessera::reference
