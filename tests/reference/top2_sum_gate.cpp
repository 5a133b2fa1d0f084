#include "tests/reference/top2_sum_gate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float at(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

int64_t id_at(const HostTensor& tensor, int64_t element) {
  const uint64_t bits = tensor.bits(element);
  return tensor.dtype() == DType::i64 ? static_cast<int64_t>(bits)
                                      : static_cast<int32_t>(static_cast<uint32_t>(bits));
}

/// Indices of `values`, largest first, equal ones by index; NaN = -infinity.
std::vector<int64_t> ranked(std::vector<float> values) {
  for (float& value : values) value = std::isnan(value) ? -kInfinity : value;
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

std::vector<float> scores_of(const std::vector<float>& logits, const std::string& scoring) {
  std::vector<float> scores;
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - largest));
  for (const float x : logits) {
    if (scoring == "sigmoid") {
      scores.push_back(1.0F / (1.0F + std::exp(-x)));
    } else if (scoring == "sqrtsoftplus") {
      scores.push_back(std::sqrt(x > 20 ? x : std::log1p(std::exp(x))));
    } else {
      scores.push_back(static_cast<float>(std::exp(static_cast<double>(x - largest)) / sum));
    }
  }
  return scores;
}

/// Experts that may be picked: those of the groups whose two best sum highest.
std::vector<bool> candidates(const std::vector<float>& keys, const GateOptions& o) {
  std::vector<bool> result(keys.size(), true);
  if (o.num_groups == o.num_topk_groups) return result;
  const size_t members = keys.size() / static_cast<size_t>(o.num_groups);
  std::vector<float> groups;
  for (size_t first = 0; first < keys.size(); first += members) {
    std::vector<float> group = {-kInfinity, -kInfinity};  // where NaN leaves fewer than two
    for (size_t e = first; e < first + members; ++e) {
      if (!std::isnan(keys[e])) group.push_back(keys[e]);
    }
    std::sort(group.begin(), group.end(), std::greater<>());
    groups.push_back(group[0] + group[1]);
  }
  const std::vector<int64_t> order = ranked(groups);
  for (size_t e = 0; e < keys.size(); ++e) {
    const auto group = static_cast<int64_t>(e / members);
    const auto place = std::find(order.begin(), order.end(), group) - order.begin();
    result[e] = place < o.num_topk_groups;
  }
  return result;
}

std::vector<int64_t> best_experts(const std::vector<float>& keys, const GateOptions& o) {
  const std::vector<bool> allowed = candidates(keys, o);
  std::vector<int64_t> best;
  for (const int64_t e : ranked(keys)) {
    if (allowed[static_cast<size_t>(e)] && std::ssize(best) < o.num_topk) best.push_back(e);
  }
  return best;
}

/// The replica of a logical expert that token t uses, or -1.
int64_t physical_of(const HostTensors& in, const GateOptions& o, int64_t t, int64_t logical) {
  if (logical < 0 || in.count("to_physical_map") == 0) return logical;
  const HostTensor& map = in.at("to_physical_map");
  const int64_t replicas = id_at(in.at("logical_count"), logical), columns = map.shape()[1];
  if (replicas <= 0 || replicas > columns) return -1;
  return id_at(map, logical * columns + (o.ep_rank + t * 23333) % replicas);
}

/// The number that a physical expert has on this rank, or -1.
int64_t local_of(const GateOptions& o, int64_t physical, int64_t num_physical) {
  if (physical < 0 || physical >= num_physical) return -1;
  const int64_t per_rank = num_physical / o.num_ep_ranks;
  const int64_t rank = physical / per_rank;
  if (rank % o.num_tp_ranks != o.tp_rank) return -1;
  return rank / o.num_tp_ranks * per_rank + physical % per_rank;
}

}  // namespace

HostTensors top2_sum_gate(const HostTensors& in, const GateOptions& o) {
  const HostTensor& logits = in.at("logits");
  const int64_t num_tokens = logits.shape()[0], num_experts = logits.shape()[1];
  const int64_t all = o.num_topk + o.num_shared;
  const auto flag = [&](const char* name, int64_t t, bool absent) {
    const auto found = in.find(name);
    return found == in.end() ? absent : found->second.bits(t) != 0;
  };
  const auto map = in.find("to_physical_map");
  const int64_t num_physical = num_experts + (map == in.end() ? 0 : map->second.shape()[1] - 1);
  HostTensor ids(DType::i64, {num_tokens, all}), weights(DType::f32, {num_tokens, all});
  HostTensors outputs;
  if (const auto given = in.find("unmapped_topk_idx"); given != in.end()) {
    outputs["unmapped_topk_idx"] = given->second;
  }
  const auto set_unmapped = [&](int64_t t, int64_t k, int64_t id) {
    const auto found = outputs.find("unmapped_topk_idx");
    if (found == outputs.end()) return;
    found->second.set_bits(t * o.num_topk + k, static_cast<uint64_t>(id));
  };
  for (int64_t t = 0; t < num_tokens; ++t) {
    std::vector<float> x;
    for (int64_t e = 0; e < num_experts; ++e) x.push_back(at(logits, t * num_experts + e));
    const bool finite = std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
    if (!flag("mask", t, true) || !finite) {
      for (int64_t k = 0; k < all; ++k) {
        ids.set_bits(t * all + k, ~uint64_t{0});
        weights.set_bits(t * all + k, 0);
        if (k < o.num_topk) set_unmapped(t, k, -1);
      }
      continue;
    }
    const std::vector<float> scores = scores_of(x, o.scoring_func);
    std::vector<int64_t> chosen;
    if (flag("fix_routing_mask", t, false)) {
      for (int64_t k = 0; k < o.num_topk; ++k) {
        const int64_t id = id_at(in.at("unmapped_topk_idx"), t * o.num_topk + k);
        chosen.push_back(id >= 0 && id < num_experts ? id : -1);
      }
    } else {
      std::vector<float> keys;
      for (int64_t e = 0; e < num_experts; ++e) {
        const auto i = static_cast<size_t>(e);
        keys.push_back((o.scoring_func == "softmax" ? x[i] : scores[i]) + at(in.at("bias"), e));
      }
      chosen = best_experts(keys, o);
      for (int64_t k = 0; k < o.num_topk; ++k) set_unmapped(t, k, chosen[static_cast<size_t>(k)]);
    }
    float sum = 1e-20F;
    for (const int64_t e : chosen) sum += e < 0 ? 0.0F : scores[static_cast<size_t>(e)];
    for (int64_t k = 0; k < all; ++k) {
      const bool routed = k < o.num_topk;
      const int64_t logical =
          routed ? chosen[static_cast<size_t>(k)] : num_experts + k - o.num_topk;
      float weight = 1;
      if (routed) {
        weight = logical < 0 ? 0.0F
                             : scores[static_cast<size_t>(logical)] / sum *
                                   static_cast<float>(o.routed_scaling_factor);
      }
      const int64_t id = local_of(o, physical_of(in, o, t, logical), num_physical);
      ids.set_bits(t * all + k, static_cast<uint64_t>(id));
      weights.set_value(t * all + k, static_cast<double>(weight));
    }
  }
  outputs["topk_idx"] = std::move(ids);
  outputs["topk_weights"] = std::move(weights);
  return outputs;
}

}  // namespace tessera::reference
