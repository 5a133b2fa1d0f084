// The tests of the Engram ops are shown to fail: copies of the references with one mistake that a
// kernel could make. The copies without a mistake must pass.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tests/support/ops/mutants.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

enum class WeightMutant { none, rounds_to_bf16, flushes };

HostTensors mutated_weight(const HostTensors& in, const Params&, WeightMutant mutant) {
  const HostTensor &hidden = in.at("weight_hidden"), &embed = in.at("weight_embed");
  HostTensor fused(DType::f32, hidden.shape()), rounded(DType::bf16, {1});
  for (int64_t i = 0; i < fused.size(); ++i) {
    float product = at(hidden, i) * at(embed, i);
    if (mutant == WeightMutant::rounds_to_bf16) {
      rounded.set_value(0, static_cast<double>(product));
      product = at(rounded, 0);
    }
    if (mutant == WeightMutant::flushes && std::fabs(product) < 0x1p-126F) product *= 0;
    fused.set_value(i, static_cast<double>(product));
  }
  return {{"weight_fused", fused}};
}

enum class OffsetMutant { none, saturates };

HostTensors mutated_offsets(const HostTensors& in, const Params&, OffsetMutant mutant) {
  const HostTensor& sizes = in.at("vocab_sizes");
  const int64_t layers = sizes.shape()[0], columns = sizes.shape()[1] * sizes.shape()[2];
  HostTensor offsets(DType::i32, {layers, columns});
  int64_t sum = 0;
  for (int64_t i = 0; i < sizes.size(); ++i) {
    if (i % columns == 0) sum = 0;
    const bool saturates = mutant == OffsetMutant::saturates;
    const int64_t offset = saturates ? std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX) : sum;
    offsets.set_bits(i, static_cast<uint32_t>(static_cast<uint64_t>(offset)));
    sum += static_cast<int64_t>(sizes.value(i));
  }
  return {{"offsets", offsets}};
}

enum class GateMutant {
  none,
  clamps_ties,
  never_clamps,
  hides_nan,
  no_mean,
  norms_swapped,
  no_norm,
  streams_descending,
  value_not_fused,
  weight_not_fused,
  ignores_images,
  drops_images,
  tokens_descending
};

HostTensors mutated_gate(const HostTensors& in, const Params& params, GateMutant mutant) {
  const HostTensor &grad_out = in.at("grad_out"), &v = in.at("v");
  const int64_t partials = std::get<int64_t>(params.at("num_persistent_blocks"));
  const int64_t hidden = in.at("weight_fused").shape()[1], tokens = v.size() / hidden;
  const int64_t per_partial = (tokens + partials - 1) / partials;
  const auto clamp = params.find("clamp_value");
  const auto c = static_cast<float>(clamp == params.end() ? 1e-6 : std::get<double>(clamp->second));
  const auto d = mutant == GateMutant::no_mean ? 1.0F : static_cast<float>(hidden);
  const auto s = static_cast<float>(1 / std::sqrt(static_cast<double>(hidden)));
  HostTensors out = {{"grad_hidden_states", HostTensor(DType::bf16, grad_out.shape())},
                     {"grad_k", HostTensor(DType::bf16, grad_out.shape())},
                     {"grad_v", HostTensor(DType::bf16, v.shape())},
                     {"grad_w_partial", HostTensor(DType::f32, {partials, 4, hidden})}};
  HostTensor& grad_w = out["grad_w_partial"];
  grad_w.fill_bytes(std::byte{0});
  for (int64_t n = 0; n < tokens; ++n) {
    const int64_t t = mutant == GateMutant::tokens_descending ? tokens - 1 - n : n;
    const auto mask = in.find("image_token_mask");
    if (mask != in.end() && mask->second.bits(t) != 0 && mutant != GateMutant::ignores_images) {
      for (int64_t i = 0; i < hidden; ++i) out["grad_v"].set_value(t * hidden + i, 0);
      for (int64_t e = t * 4 * hidden; e < (t + 1) * 4 * hidden; ++e) {
        const double passed = mutant == GateMutant::drops_images ? 0 : grad_out.value(e);
        out["grad_hidden_states"].set_value(e, passed);
        out["grad_k"].set_value(e, 0);
      }
      continue;
    }
    for (int64_t i = 0; i < hidden; ++i) {
      float sum = 0;
      for (int64_t n_stream = 0; n_stream < 4; ++n_stream) {
        const int64_t h = mutant == GateMutant::streams_descending ? 3 - n_stream : n_stream;
        const float g = at(in.at("gate_score"), t * 4 + h);
        const float a = at(grad_out, (t * 4 + h) * hidden + i);
        sum = mutant == GateMutant::value_not_fused ? sum + g * a : std::fma(g, a, sum);
      }
      out["grad_v"].set_value(t * hidden + i, static_cast<double>(sum));
    }
    for (int64_t row = t * 4; row < t * 4 + 4; ++row) {
      double l = 0;
      for (int64_t i = 0; i < hidden; ++i) {
        l += grad_out.value(row * hidden + i) * v.value(t * hidden + i);
      }
      const float dot = at(in.at("dot"), row), g = at(in.at("gate_score"), row);
      const float rx = at(in.at("rstd_x"), row), rk = at(in.at("rstd_k"), row);
      const float score = std::fabs(dot) * s * rx * rk;
      bool is_clamped = mutant == GateMutant::clamps_ties ? score <= c : score < c;
      if (mutant == GateMutant::never_clamps) is_clamped = false;
      if (mutant == GateMutant::hides_nan) is_clamped = !(score >= c);
      const float slope =
          static_cast<float>(l) * g * (1 - g) * 0.5F * std::sqrt(s * rx * rk / std::fabs(dot));
      const float delta = is_clamped ? 0 : slope;
      float dx = dot * rx * rx / d, dk = dot * rk * rk / d;
      if (mutant == GateMutant::norms_swapped) std::swap(dx, dk);
      if (mutant == GateMutant::no_norm) dx = dk = 0;
      const int64_t p = t / per_partial;
      for (int64_t i = 0; i < hidden; ++i) {
        const int64_t e = row * hidden + i, w = (p * 4 + row % 4) * hidden + i;
        const float x = at(in.at("hidden_states"), e), k = at(in.at("k"), e);
        const float weight = at(in.at("weight_fused"), row % 4 * hidden + i);
        const float grad_x = std::fma(delta, std::fma(-x, dx, k * weight), at(grad_out, e));
        const float grad_k = delta * std::fma(-k, dk, x * weight);
        const float sum = mutant == GateMutant::weight_not_fused
                              ? at(grad_w, w) + delta * x * k
                              : std::fma(delta * x, k, at(grad_w, w));
        out["grad_hidden_states"].set_value(e, static_cast<double>(grad_x));
        out["grad_k"].set_value(e, static_cast<double>(grad_k));
        grad_w.set_value(w, static_cast<double>(sum));
      }
    }
  }
  return out;
}

enum class ReduceMutant { none, descending, not_fused, adds_first, overwrites };

HostTensors mutated_reduce(const HostTensors& in, const Params&, ReduceMutant mutant) {
  const HostTensor& partial = in.at("grad_w_partial");
  const int64_t partials = partial.shape()[0], weights = in.at("weight_hidden").size();
  HostTensors out;
  for (const std::string which : {"hidden", "embed"}) {
    const HostTensor& weight = in.at(which == "hidden" ? "weight_embed" : "weight_hidden");
    const auto given = in.find("grad_weight_" + which);
    HostTensor grad(DType::f32, weight.shape());
    for (int64_t i = 0; i < weights; ++i) {
      const float before =
          given == in.end() || mutant == ReduceMutant::overwrites ? 0 : at(given->second, i);
      float sum = mutant == ReduceMutant::adds_first ? before / at(weight, i) : 0;
      for (int64_t n = 0; n < partials; ++n) {
        const int64_t p = mutant == ReduceMutant::descending ? partials - 1 - n : n;
        sum += at(partial, p * weights + i);
      }
      float result = std::fma(sum, at(weight, i), before);
      if (mutant == ReduceMutant::not_fused) result = sum * at(weight, i) + before;
      if (mutant == ReduceMutant::adds_first) result = sum * at(weight, i);
      grad.set_value(i, static_cast<double>(result));
    }
    out["grad_weight_" + which] = std::move(grad);
  }
  return out;
}

}  // namespace

TEST_CASE("the fused_weight tests catch every mutant", "[mutants][fused_weight]") {
  check_mutants("fused_weight", fused_weight_cases(), WeightMutant::flushes, mutated_weight);
}

TEST_CASE("the engram_make_offsets tests catch every mutant", "[mutants][engram_make_offsets]") {
  check_mutants("engram_make_offsets", engram_make_offsets_cases(), OffsetMutant::saturates,
                mutated_offsets);
}

TEST_CASE("the engram_gate_bwd tests catch every mutant", "[mutants][engram_gate_bwd][slow]") {
  std::vector<OpCase> cases;  // the small ones
  for (OpCase& test : engram_gate_bwd_cases()) {
    if (test.inputs.at("k").size() <= 6 * 4 * 1024) cases.push_back(std::move(test));
  }
  REQUIRE(cases.size() > 15);
  check_mutants("engram_gate_bwd", cases, GateMutant::tokens_descending, mutated_gate);
}

TEST_CASE("the grad_w_reduce tests catch every mutant", "[mutants][grad_w_reduce][slow]") {
  check_mutants("grad_w_reduce", grad_w_reduce_cases(), ReduceMutant::overwrites, mutated_reduce);
}
