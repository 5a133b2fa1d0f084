#include "tests/reference/moe_topk_gate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/reference/lane_sum.h"
#include "tests/reference/numeric.h"

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

int64_t integer_at(const HostTensor& tensor, int64_t element) {
  const uint64_t bits = tensor.bits(element);
  return tensor.dtype() == DType::i64 ? static_cast<int64_t>(bits)
                                      : static_cast<int32_t>(static_cast<uint32_t>(bits));
}

bool flag(const HostTensors& tensors, const std::string& name, int64_t token, bool absent) {
  const HostTensor* found = given(tensors, name);
  return found == nullptr ? absent : found->bits(token) != 0;
}

void set(HostTensor& tensor, int64_t element, float value) {
  tensor.set_bits(element, bits_of(value));
}

float score_of(float logit) {
  return std::sqrt(logit > 20 ? logit : std::log1p(std::exp(logit)));
}

std::vector<float> row_of(const HostTensor& matrix, int64_t row) {
  const int64_t columns = matrix.shape()[1];
  std::vector<float> values;
  for (int64_t i = 0; i < columns; ++i) values.push_back(number(matrix, row * columns + i));
  return values;
}

std::vector<int64_t> best(std::vector<float> keys, int64_t count) {
  for (float& key : keys) {
    if (std::isnan(key)) key = -std::numeric_limits<float>::infinity();
  }
  std::vector<int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return keys[static_cast<size_t>(a)] > keys[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  return order;
}

float butterfly_sum(const std::vector<float>& scores) {
  std::array<float, 32> lanes = {};
  std::copy(scores.begin(), scores.end(), lanes.begin());
  for (size_t distance = 16; distance > 0; distance /= 2) {
    const std::array<float, 32> before = lanes;
    for (size_t i = 0; i < 32; ++i) lanes[i] = before[i] + before[i ^ distance];
  }
  return lanes[0];
}

/// The replica that token t uses, or -1.
int64_t physical_of(const HostTensors& in, const TopkGateOptions& o, int64_t t, int64_t logical) {
  const HostTensor* map = given(in, "to_physical_map");
  if (logical < 0 || map == nullptr) return logical;
  const int64_t replicas = integer_at(in.at("logical_count"), logical), columns = map->shape()[1];
  if (replicas <= 0 || replicas > columns) return -1;
  const int64_t id = integer_at(*map, logical * columns + (o.ep_rank + t * 23333) % replicas);
  return id < 0 ? -1 : id;
}

/// The experts of a token; -1 for a slot that names none.
std::vector<int64_t> chosen_of(const HostTensors& in, const TopkGateOptions& o, int64_t t,
                               const std::vector<float>& scores) {
  const auto experts = std::ssize(scores);
  if (flag(in, "fix_routing_mask", t, false)) {
    std::vector<int64_t> kept;
    for (int64_t k = 0; k < o.num_topk; ++k) {
      const int64_t id = integer_at(in.at("unmapped_topk_idx"), t * o.num_topk + k);
      kept.push_back(id >= 0 && id < experts ? id : -1);
    }
    return kept;
  }
  const bool is_image = flag(in, "image_token_mask", t, false);
  const HostTensor* bias = given(in, is_image ? "image_bias" : "bias");
  std::vector<float> keys = scores;
  for (int64_t e = 0; e < experts && bias != nullptr; ++e) {
    keys[static_cast<size_t>(e)] += number(*bias, e);
  }
  return best(std::move(keys), o.num_topk);
}

float derivative(float u) {
  const float v = u * u;
  if (!(v < 1)) return 0.5F * ((1.0F - std::exp(-v)) / u);
  float q = 0.000129130945F;
  for (const float factor :
       {-0.00130112655F, 0.00827621203F, -0.041647464F, 0.166663632F, -0.499999821F}) {
    q = std::fma(q, v, factor);
  }
  const float half = 0.5F * u, product = v * q;
  return std::fma(product, half, half);
}

float sum_of(const std::vector<float>& values) {
  return lane_sum(values, std::vector<float>(values.size(), 1.0F));  // fma by 1 is an addition
}

}  // namespace

HostTensors moe_topk_gate_fwd(const HostTensors& in, const TopkGateOptions& o) {
  const HostTensor& logits = in.at("logits");
  const int64_t tokens = logits.shape()[0], experts = logits.shape()[1];
  const int64_t all = o.num_topk + o.num_shared;
  HostTensor ids(DType::i64, {tokens, all}), weights(DType::f32, {tokens, all});
  HostTensor saved(DType::f32, {tokens, experts});
  HostTensors result;
  if (const HostTensor* unmapped = given(in, "unmapped_topk_idx")) {
    result["unmapped_topk_idx"] = *unmapped;
  }
  const auto set_unmapped = [&](int64_t t, int64_t k, int64_t id) {
    const auto found = result.find("unmapped_topk_idx");
    if (found == result.end() || k >= o.num_topk) return;
    found->second.set_bits(t * o.num_topk + k, static_cast<uint64_t>(id));
  };
  for (int64_t t = 0; t < tokens; ++t) {
    const std::vector<float> x = row_of(logits, t);
    const bool finite = std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
    const bool routed = flag(in, "mask", t, true) && finite;
    std::vector<float> scores;
    for (int64_t e = 0; e < experts; ++e) {
      scores.push_back(routed ? score_of(x[static_cast<size_t>(e)]) : 0.0F);
      set(saved, t * experts + e, scores.back());
    }
    if (!routed) {
      for (int64_t k = 0; k < all; ++k) {
        ids.set_bits(t * all + k, ~uint64_t{0});
        set(weights, t * all + k, 0);
        set_unmapped(t, k, -1);
      }
      continue;
    }
    const std::vector<int64_t> chosen = chosen_of(in, o, t, scores);
    std::vector<float> theirs;
    for (const int64_t e : chosen) theirs.push_back(e < 0 ? 0 : scores[static_cast<size_t>(e)]);
    const float denominator = butterfly_sum(theirs) + 1e-20F;
    for (int64_t k = 0; k < all; ++k) {
      const bool is_shared = k >= o.num_topk;
      const auto slot = static_cast<size_t>(k);
      const int64_t logical = is_shared ? experts + k - o.num_topk : chosen[slot];
      float weight = 1;
      if (!is_shared) {
        const float share = theirs[slot] / denominator;
        weight = logical < 0 ? 0.0F : share * static_cast<float>(o.routed_scaling_factor);
        if (!flag(in, "fix_routing_mask", t, false)) set_unmapped(t, k, logical);
      }
      ids.set_bits(t * all + k, static_cast<uint64_t>(physical_of(in, o, t, logical)));
      set(weights, t * all + k, weight);
    }
  }
  result["topk_idx"] = std::move(ids);
  result["topk_weights"] = std::move(weights);
  if (o.save_scores) result["scores"] = std::move(saved);
  return result;
}

HostTensors moe_topk_gate_bwd(const HostTensors& in, double routed_scaling_factor) {
  const HostTensor &scores = in.at("scores"), &ids = in.at("topk_idx");
  const int64_t tokens = scores.shape()[0], experts = scores.shape()[1], topk = ids.shape()[1];
  const auto factor = static_cast<float>(routed_scaling_factor);
  const HostTensor* sums = given(in, "grad_scores_sum");
  HostTensor grad_logits(DType::f32, {tokens, experts});
  for (int64_t t = 0; t < tokens; ++t) {
    const std::vector<float> u = row_of(scores, t);
    const bool counts = flag(in, "mask", t, true);
    std::vector<int64_t> chosen;
    std::vector<float> gradients;
    float total = 0, a = 0;
    for (int64_t k = 0; k < topk; ++k) {
      const int64_t id = integer_at(ids, t * topk + k);
      const bool exists = counts && id >= 0 && id < experts;
      chosen.push_back(exists ? id : -1);
      gradients.push_back(exists ? number(in.at("grad_topk_weights"), t * topk + k) : 0.0F);
      const float w = exists ? number(in.at("topk_weights"), t * topk + k) : 0.0F;
      total = total + (exists ? u[static_cast<size_t>(id)] : 0.0F);
      a = std::fma(gradients.back(), w, a);
    }
    std::vector<float> grad(static_cast<size_t>(experts));
    for (size_t k = 0; k < chosen.size(); ++k) {
      if (chosen[k] < 0) continue;
      const float scaled = factor * gradients[k], difference = scaled - a;
      auto& sum = grad[static_cast<size_t>(chosen[k])];
      sum = sum + difference / (total + 1e-20F);
    }
    if (sums != nullptr && counts) {
      const std::vector<float> h = row_of(*sums, t / (tokens / sums->shape()[0]));
      const float all = sum_of(u), both = lane_sum(h, u), inverse = 1.0F / all;
      for (size_t e = 0; e < grad.size() && all != 0; ++e) {
        const float product = both * inverse, difference = h[e] - product;
        grad[e] = grad[e] + difference * inverse;
      }
    }
    for (int64_t e = 0; e < experts; ++e) {
      const auto i = static_cast<size_t>(e);
      set(grad_logits, t * experts + e, derivative(u[i]) * grad[i]);
    }
  }
  HostTensors result;
  result["grad_logits"] = std::move(grad_logits);
  return result;
}

HostTensors gate_scores_sum(const HostTensors& in, int64_t num_seqs) {
  constexpr int64_t kRun = 64;
  const HostTensor& scores = in.at("scores");
  const int64_t experts = scores.shape()[1], length = scores.shape()[0] / num_seqs;
  HostTensor out(DType::f32, {num_seqs, experts});
  for (int64_t s = 0; s < num_seqs; ++s) {
    std::vector<float> total(static_cast<size_t>(experts)), run(total);
    for (int64_t i = 0; i < length; ++i) {
      const int64_t t = s * length + i;
      const std::vector<float> u = row_of(scores, t);
      const float all = sum_of(u);
      for (size_t e = 0; e < u.size() && flag(in, "mask", t, true) && all != 0; ++e) {
        run[e] = run[e] + u[e] / all;
      }
      if ((i + 1) % kRun != 0 && i + 1 != length) continue;
      for (size_t e = 0; e < u.size(); ++e) total[e] = total[e] + run[e];
      run.assign(run.size(), 0.0F);
    }
    for (int64_t e = 0; e < experts; ++e) set(out, s * experts + e, total[static_cast<size_t>(e)]);
  }
  HostTensors result;
  result["out"] = std::move(out);
  return result;
}

}  // namespace tessera::reference
