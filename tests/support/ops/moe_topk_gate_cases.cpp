// Cases of the router by the root of softplus: models, ties, biases of text and images, kept routings,
// shared experts, replicas, padding, and values that callers promise not to give.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "tests/reference/ops.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Logits that differ by at least 1/64 within a row, so that exp cannot exchange two experts.
HostTensor spread_logits(int64_t tokens, int64_t experts, uint64_t seed) {
  Random random(seed);
  HostTensor logits(DType::f32, {tokens, experts});
  std::vector<int64_t> order(static_cast<size_t>(experts));
  for (int64_t t = 0; t < tokens; ++t) {
    std::iota(order.begin(), order.end(), 0);
    for (int64_t i = experts - 1; i > 0; --i) {
      std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.below(i + 1))]);
    }
    for (int64_t e = 0; e < experts; ++e) {
      const auto place = static_cast<double>(order[static_cast<size_t>(e)]);
      logits.set_value(t * experts + e, (place - static_cast<double>(experts) / 2) / 64);
    }
  }
  return logits;
}

HostTensor flags(int64_t tokens, int64_t every, int64_t first = 0) {
  return tensor_by(DType::boolean, {tokens},
                   [&](int64_t t) { return (t + first) % every == 0 ? 1 : 0; });
}

OpCase gate_case(int64_t tokens, int64_t experts, int64_t topk, kernels::Params params = {}) {
  OpCase test;
  test.label = fmt::format("T={} E={} K={}", tokens, experts, topk);
  test.inputs["logits"] = spread_logits(tokens, experts, 51);
  test.params = std::move(params);
  test.params["num_topk"] = topk;
  test.tolerances["topk_weights"] = Tolerance{1e-5, 1e-8};  // exp and log1p
  test.tolerances["scores"] = Tolerance{1e-5, 1e-8};
  return test;
}

OpCase labelled(OpCase test, const std::string& text) {
  test.label += " " + text;
  return test;
}

OpCase biased(OpCase test, bool images) {
  const int64_t tokens = test.inputs.at("logits").shape()[0];
  const int64_t experts = test.inputs.at("logits").shape()[1];
  test.inputs["bias"] = random_tensor(DType::f32, {experts}, Values::normal, 52);
  if (images) {
    test.inputs["image_bias"] = random_tensor(DType::f32, {experts}, Values::normal, 53);
    test.inputs["image_token_mask"] = flags(tokens, 3);
  }
  return labelled(std::move(test), images ? "image_bias" : "bias");
}

OpCase with_unmapped(OpCase test, int64_t pitch = 0) {
  const int64_t tokens = test.inputs.at("logits").shape()[0];
  const int64_t experts = test.inputs.at("logits").shape()[1];
  const auto topk = std::get<int64_t>(test.params.at("num_topk"));
  HostTensor ids(DType::i64, {tokens, topk}, Dims{std::max(pitch, topk), 1});
  Random random(54);
  for (int64_t i = 0; i < ids.size(); ++i) {
    ids.set_value(i, static_cast<double>(random.below(experts)));
  }
  test.inputs["unmapped_topk_idx"] = std::move(ids);
  return labelled(std::move(test), fmt::format("unmapped {}", pitch));
}

OpCase fixed(OpCase test) {
  test = with_unmapped(std::move(test));
  test.inputs["fix_routing_mask"] = flags(test.inputs.at("logits").shape()[0], 2);
  return labelled(std::move(test), "fixed");
}

OpCase mapped(OpCase test, int64_t columns) {
  const int64_t experts = test.inputs.at("logits").shape()[1];
  const bool shares = test.params.contains("use_shared_as_routed");
  const int64_t all =
      experts + (shares ? std::get<int64_t>(test.params.at("num_shared_experts")) : 0);
  test.inputs["to_physical_map"] = tensor_by(DType::i32, {all, columns}, [&](int64_t i) {
    return i % 11 == 3 ? -1 : i * 7 % (all + columns);
  });
  test.inputs["logical_count"] =
      tensor_by(DType::i32, {all}, [&](int64_t e) { return e % columns + 1; });
  return labelled(std::move(test), fmt::format("D={}", columns));
}

OpCase masked(OpCase test) {
  test.inputs["mask"] = flags(test.inputs.at("logits").shape()[0], 2);
  return labelled(std::move(test), "masked");
}

void add_promises(std::vector<OpCase>& cases) {
  OpCase infinite = labelled(fixed(gate_case(9, 40, 4, {{"save_scores", true}})), "not finite");
  infinite.inputs["logits"].set_value(0 * 40 + 7, kNan);
  infinite.inputs["logits"].set_value(3 * 40 + 39, kInfinity);
  infinite.inputs["logits"].set_value(4 * 40 + 0, -kInfinity);
  cases.push_back(infinite);
  cases.push_back(masked(std::move(infinite)));
  OpCase unknown = labelled(fixed(gate_case(6, 40, 4)), "kept experts out of range");
  unknown.inputs["unmapped_topk_idx"] = tensor_of(DType::i64, {6, 4}, {-1, 40, 4294967297, 3, 5});
  cases.push_back(std::move(unknown));
  OpCase counts = labelled(mapped(gate_case(40, 40, 4), 3), "counts out of range");
  counts.inputs["logical_count"] = tensor_of(DType::i32, {40}, {0, 1, 4, -3, 2, 3});
  cases.push_back(std::move(counts));
}

struct Backward {
  int64_t tokens, experts, topk, sequences = 0;
  double factor = 1;
};

OpCase backward_case(const Backward& b) {
  OpCase test;
  test.label =
      fmt::format("T={} E={} K={} Q={} f={}", b.tokens, b.experts, b.topk, b.sequences, b.factor);
  const OpCase forward = gate_case(b.tokens, b.experts, b.topk,
                                   {{"save_scores", true}, {"routed_scaling_factor", b.factor}});
  const HostTensors saved = reference::runner("moe_topk_gate_fwd")(forward.inputs, forward.params);
  for (const char* name : {"scores", "topk_idx", "topk_weights"}) {
    test.inputs[name] = saved.at(name);
  }
  test.inputs["grad_topk_weights"] =
      random_tensor(DType::f32, {b.tokens, b.topk}, Values::normal, 55);
  if (b.sequences > 0) {
    test.inputs["mask"] =
        tensor_by(DType::boolean, {b.tokens}, [](int64_t t) { return t % 5 == 4 ? 0 : 1; });
    test.inputs["grad_scores_sum"] =
        random_tensor(DType::f32, {b.sequences, b.experts}, Values::normal, 56);
  }
  test.params["routed_scaling_factor"] = b.factor;
  test.tolerance = Tolerance{1e-5, 1e-7};  // exp
  return test;
}

}  // namespace

std::vector<OpCase> moe_topk_gate_fwd_cases() {
  std::vector<OpCase> cases;
  const kernels::Params scored = {{"save_scores", true}, {"routed_scaling_factor", 2.5}};
  for (const auto& [experts, topk] : std::vector<std::pair<int64_t, int64_t>>{
           {256, 6}, {384, 8}, {30, 5}, {72, 1}, {32, 32}, {1, 1}, {1027, 6}, {4096, 6}}) {
    const int64_t tokens = experts > 1000 ? 3 : 9;
    cases.push_back(gate_case(tokens, experts, topk, scored));
    cases.push_back(biased(gate_case(tokens, experts, topk), experts % 4 == 0));
  }
  cases.push_back(gate_case(0, 64, 4, scored));
  cases.push_back(biased(gate_case(34, 64, 4, scored), true));  // the last token is an image
  OpCase images = biased(gate_case(12, 64, 4), true);
  images.inputs.erase("bias");  // text is ranked by the scores alone
  cases.push_back(labelled(std::move(images), "no bias"));
  const kernels::Params shared = {
      {"use_shared_as_routed", true}, {"num_shared_experts", int64_t{2}}, {"ep_rank", int64_t{3}}};
  cases.push_back(gate_case(9, 64, 4, shared));
  cases.push_back(gate_case(9, 64, 30, shared));
  cases.push_back(mapped(gate_case(40, 64, 4, shared), 3));
  cases.push_back(mapped(gate_case(40, 64, 4), 5));
  cases.push_back(gate_case(9, 64, 4, {{"num_shared_experts", int64_t{2}}}));  // not as routed
  cases.push_back(with_unmapped(mapped(gate_case(9, 64, 4), 2), 7));
  cases.push_back(fixed(gate_case(9, 64, 4, scored)));
  cases.push_back(masked(fixed(biased(gate_case(20, 64, 4, scored), true))));
  OpCase ties = labelled(gate_case(4, 64, 6, scored), "ties");
  for (int64_t i = 0; i < 4 * 64; ++i)
    ties.inputs["logits"].set_value(i, static_cast<double>(i / 64 == 3 ? 0 : i % 3));
  cases.push_back(std::move(ties));
  OpCase banned = labelled(biased(gate_case(5, 8, 4), false), "banned");
  banned.inputs["bias"] =
      tensor_of(DType::f32, {8}, {-kInfinity, 1, kNan, -kInfinity, 2, kNan, -kInfinity, kInfinity});
  cases.push_back(std::move(banned));
  OpCase low = labelled(gate_case(6, 16, 4, scored), "logits from -120 to 60");
  for (int64_t i = 0; i < 6 * 16; ++i) {
    low.inputs["logits"].set_value(
        i, static_cast<double>(i / 16) * 36 - 120 + static_cast<double>(i % 16) / 8);
  }
  for (const char* name : {"topk_weights", "scores"}) low.tolerances[name] = Tolerance{1e-4, 1e-8};
  cases.push_back(std::move(low));
  add_promises(cases);
  return cases;
}

std::vector<OpCase> moe_topk_gate_bwd_cases() {
  std::vector<OpCase> cases;
  for (const auto& [experts, topk] : std::vector<std::pair<int64_t, int64_t>>{
           {256, 6}, {384, 8}, {30, 5}, {72, 1}, {32, 32}, {1, 1}, {1027, 6}, {4096, 6}}) {
    const int64_t tokens = experts > 1000 ? 4 : 10;
    cases.push_back(backward_case({tokens, experts, topk, 0, 2.5}));
    cases.push_back(backward_case({tokens, experts, topk, 2}));
  }
  cases.push_back(backward_case({0, 64, 4}));
  OpCase repeats = labelled(backward_case({9, 16, 6, 3}), "repeats and empty slots");
  for (int64_t i = 0; i < 9 * 6; ++i) {
    repeats.inputs["topk_idx"].set_value(i, i % 7 == 5 ? -1 : static_cast<double>(i % 3));
    if (i % 7 == 5) repeats.inputs["topk_weights"].set_value(i, kNan);  // is not looked at
  }
  cases.push_back(std::move(repeats));
  OpCase unknown = labelled(backward_case({4, 16, 3, 1}), "experts out of range, no scores");
  unknown.inputs["topk_idx"] = tensor_of(DType::i64, {4, 3}, {16, 3, 4294967297, -5, 15});
  for (int64_t e = 0; e < 16; ++e) unknown.inputs["scores"].set_value(16 + e, 0);
  cases.push_back(std::move(unknown));
  OpCase large = labelled(backward_case({6, 16, 4}), "scores from 0 to 9");
  for (int64_t i = 0; i < 6 * 16; ++i) {
    large.inputs["scores"].set_value(i, i == 1 ? 1e-30 : static_cast<double>(i) / 10.6);
  }
  cases.push_back(std::move(large));
  return cases;
}

std::vector<OpCase> gate_scores_sum_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](int64_t tokens, int64_t experts, int64_t sequences) {
    OpCase test;
    test.label = fmt::format("T={} E={} Q={}", tokens, experts, sequences);
    test.inputs["scores"] = random_tensor(DType::f32, {tokens, experts}, Values::uniform, 57);
    test.inputs["mask"] =
        tensor_by(DType::boolean, {tokens}, [](int64_t t) { return t % 5 == 4 ? 0 : 1; });
    test.params["num_seqs"] = sequences;
    cases.push_back(std::move(test));
  };
  for (const int64_t tokens : {1, 63, 64, 65, 128, 200}) add(tokens, 72, 1);
  for (const int64_t experts : {1, 30, 256, 384, 1027}) add(12, experts, 3);
  add(390, 256, 3);
  add(64, 32, 64);
  add(5, 4096, 1);
  add(41, 1027, 1);  // several tiles of shares
  add(4200, 8, 1);   // and of runs
  add(0, 64, 2);
  cases.push_back(labelled(cases[5], "rows of zeros, NaN"));
  HostTensor& scores = cases.back().inputs["scores"];
  for (int64_t e = 0; e < 72; ++e) {
    scores.set_value(e, 0);
    scores.set_value(4 * 72 + e, kNan);  // left out
  }
  scores.set_value(70 * 72 + 3, kNan);
  return cases;
}

}  // namespace tessera::test
