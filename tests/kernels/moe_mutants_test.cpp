// The tests of the routing and Engram ops are shown to fail: mutants of the inputs' meaning or of the
// references with one mistake that a kernel could make.

#include <cmath>
#include <functional>

#include "tests/support/ops/mutants.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

int64_t integer_at(const HostTensor& tensor, int64_t element) {
  return static_cast<int64_t>(tensor.value(element));
}

/// The mistakes that a kernel that moves rows could make, of an op with or without scales.
void check_expand_mutants(const std::string& op, const std::vector<OpCase>& cases) {
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK(caught([](HostTensors& in, Params&) {  // padding keeps what was there
    for (int64_t p = 0; p < in["pos_to_expert"].size(); ++p) in["pos_to_expert"].set_value(p, 0);
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // -1 alone is padding
    for (int64_t p = 0; p < in["pos_to_expert"].size(); ++p) {
      if (in["pos_to_expert"].value(p) < -1) in["pos_to_expert"].set_value(p, 0);
    }
  }));
  for (const int64_t last : {0, 31}) {  // the first slot of a token only, or those of one warp
    CHECK(caught([last](HostTensors& in, Params&) {
      HostTensor& positions = in["token_topk_to_pos"];
      for (int64_t i = 0; i < positions.size(); ++i) {
        if (i % positions.shape()[1] > last) positions.set_value(i, -1);
      }
    }));
  }
  CHECK(caught([](HostTensors& in, Params&) {  // NaN codes are rewritten
    HostTensor& x = in["x"];
    for (int64_t i = 0; i < x.size(); ++i) {
      if (x.bits(i) == 0xFF) x.set_bits(i, 0x7F);
    }
  }));
}

/// reduce_fused, spelled out once more with mistakes.
enum class ReduceMutant { none, not_fused, adds_skipped, weights_last, sf_in_factor, descending };

HostTensors mutated_reduce(const HostTensors& in, const Params& params, ReduceMutant mutant) {
  const HostTensor &x = in.at("x"), &positions = in.at("token_topk_to_pos");
  const int64_t topk = positions.shape()[1], hidden = x.shape()[1];
  const auto scalar = [&](const char* name, int64_t element) {
    const auto found = in.find(name);
    return found == in.end() ? 1.0F : static_cast<float>(found->second.value(element));
  };
  const bool e4m3 = params.contains("format");
  HostTensor out(e4m3 ? DType::e4m3 : x.dtype(), {positions.shape()[0], hidden});
  for (int64_t i = 0; i < out.size(); ++i) {
    float acc = 0;
    for (int64_t k = 0; k < topk; ++k) {
      const int64_t slot =
          i / hidden * topk + (mutant == ReduceMutant::descending ? topk - 1 - k : k);
      const int64_t p = integer_at(positions, slot);
      const bool valid = p >= 0 && p < x.shape()[0];
      if (!valid && mutant != ReduceMutant::adds_skipped) continue;
      const float weight = scalar("topk_weights", slot);
      if (!valid) {
        acc = std::fma(0.0F, weight, acc);
        if (acc == 0) acc = -0.0F;
        continue;
      }
      const float scale = scalar("x_sf", p);
      const auto value = static_cast<float>(x.value(p * hidden + i % hidden));
      float s = weight * scale;
      if (mutant == ReduceMutant::sf_in_factor) s = s * scalar("sf", 0);
      if (mutant == ReduceMutant::not_fused) {
        acc = acc + value * s;
      } else if (mutant == ReduceMutant::weights_last) {
        acc = std::fma(value * scale, weight, acc);
      } else {
        acc = std::fma(value, s, acc);
      }
    }
    if (in.contains("sf") && mutant != ReduceMutant::sf_in_factor) acc = acc * scalar("sf", 0);
    out.set_value(i, static_cast<double>(acc));
  }
  return {{"out", out}};
}

}  // namespace

TEST_CASE("the reduce_fused tests catch every mutant", "[reduce_fused][mutants][slow]") {
  check_mutants("reduce_fused", reduce_fused_cases(), ReduceMutant::descending, mutated_reduce);
}

TEST_CASE("the expand_to_fused_with_sf tests catch every mutant",
          "[expand_to_fused_with_sf][mutants][slow]") {
  check_expand_mutants("expand_to_fused_with_sf", expand_to_fused_with_sf_cases());
}

TEST_CASE("the expand_to_fused tests catch every mutant", "[expand_to_fused][mutants][slow]") {
  check_expand_mutants("expand_to_fused", expand_to_fused_cases());
}

TEST_CASE("the top2_sum_gate tests catch every mutant", "[top2_sum_gate][mutants]") {
  const std::string op = "top2_sum_gate";
  const auto cases = top2_sum_gate_cases();
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK(caught([](HostTensors& in, Params&) { in.erase("mask"); }));
  CHECK(caught([](HostTensors& in, Params&) { in.erase("fix_routing_mask"); }));
  CHECK(caught([](HostTensors& in, Params&) { in["bias"].fill_bytes(std::byte{0}); }));
  CHECK(caught([](HostTensors&, Params& params) {  // no groups
    params["num_groups"] = params["num_topk_groups"] = int64_t{0};
  }));
  CHECK(caught([](HostTensors&, Params& params) { params["routed_scaling_factor"] = 1.0; }));
  CHECK(caught([](HostTensors&, Params& params) { params["ep_rank"] = int64_t{0}; }));
  CHECK(caught([](HostTensors&, Params& params) { params["tp_rank"] = int64_t{0}; }));
  CHECK(caught([](HostTensors&, Params& params) {  // softmax by probability would differ in order
    if (std::get<std::string>(params["scoring_func"]) == "softmax") {
      params["scoring_func"] = std::string("sigmoid");
    }
  }));
  CHECK(caught([](HostTensors&, Params& params) {
    if (std::get<std::string>(params["scoring_func"]) == "sqrtsoftplus") {
      params["scoring_func"] = std::string("sigmoid");
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // replicas beyond the first are not used
    if (!in.contains("logical_count")) return;
    HostTensor& count = in["logical_count"];
    for (int64_t i = 0; i < count.size(); ++i) {
      if (count.value(i) > 1) count.set_value(i, 1);
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // infinite logits are large ones
    HostTensor& logits = in["logits"];
    for (int64_t i = 0; i < logits.size(); ++i) {
      if (std::isinf(logits.value(i))) logits.set_value(i, 80);
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // -0 below +0
    HostTensor& logits = in["logits"];
    for (int64_t i = 0; i < logits.size(); ++i) {
      if (logits.value(i) == 0 && std::signbit(logits.value(i))) logits.set_value(i, -0x1p-10);
    }
  }));
  // ids that became -1 lose their weight
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors&, HostTensors& outputs) {
                    for (int64_t i = 0; i < outputs["topk_idx"].size(); ++i) {
                      if (outputs["topk_idx"].value(i) < 0) outputs["topk_weights"].set_value(i, 0);
                    }
                  })));
  // unmapped_topk_idx is left alone
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& inputs, HostTensors& outputs) {
                    const auto given = inputs.find("unmapped_topk_idx");
                    if (given != inputs.end()) outputs["unmapped_topk_idx"] = given->second;
                  })));
}

TEST_CASE("the Engram tests catch every mutant", "[engram_hash][engram_gate_fwd][mutants][slow]") {
  const auto hash_cases = engram_hash_cases(), gate_cases = engram_gate_fwd_cases();
  const auto hash = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught("engram_hash", hash_cases, misled("engram_hash", mistake));
  };
  CHECK(hash([](HostTensors& in, Params&) {  // multipliers of 32 bits
    HostTensor& m = in["multipliers"];
    for (int64_t i = 0; i < m.size(); ++i) m.set_bits(i, m.bits(i) & 0xFFFFFFFF);
  }));
  CHECK(hash([](HostTensors& in, Params&) {  // ids without a sign
    HostTensor& ids = in["ngram_token_ids"];
    for (int64_t i = 0; i < ids.size(); ++i) ids.set_bits(i, ids.bits(i) & 0x7FFFFFFF);
  }));
  CHECK(hash([](HostTensors& in, Params&) { in["offsets"].fill_bytes(std::byte{0}); }));
  CHECK(hash([](HostTensors& in, Params&) {  // sizes out of range taken for 2
    HostTensor& sizes = in["vocab_sizes"];
    for (int64_t i = 0; i < sizes.size(); ++i) {
      if (sizes.value(i) <= 0) sizes.set_value(i, 2);
    }
  }));
  CHECK(hash([](HostTensors& in, Params&) { in.erase("image_token_mask"); }));

  const auto gate = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught("engram_gate_fwd", gate_cases, misled("engram_gate_fwd", mistake));
  };
  CHECK(gate([](HostTensors&, Params& params) { params["eps"] = 1e-20; }));
  CHECK(gate([](HostTensors&, Params& params) { params["clamp_value"] = 1e-6; }));
  CHECK(gate([](HostTensors& in, Params&) { in.erase("image_token_mask"); }));
}
