// The router by the root of softplus on the executor: the references, the mistakes that their cases
// catch, gradients against differences, what bad calls are told.

#include <algorithm>
#include <cmath>

#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const kernels::UncheckedValues as_on_a_gpu;
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

using Mistake = std::function<void(HostTensors&, Params&)>;

Mistake without(const std::string& name) {
  return [=](HostTensors& in, Params&) { in.erase(name); };
}

Mistake with_param(const std::string& name, const kernels::ParamValue& value) {
  return [=](HostTensors&, Params& params) { params[name] = value; };
}

}  // namespace

TEST_CASE("moe_topk_gate_fwd equals its reference on the executor", "[moe_topk_gate_fwd]") {
  check_cases("moe_topk_gate_fwd", moe_topk_gate_fwd_cases());
}

TEST_CASE("moe_topk_gate_bwd equals its reference on the executor", "[moe_topk_gate_bwd]") {
  check_cases("moe_topk_gate_bwd", moe_topk_gate_bwd_cases());
}

TEST_CASE("gate_scores_sum equals its reference on the executor", "[gate_scores_sum]") {
  check_cases("gate_scores_sum", gate_scores_sum_cases());
}

TEST_CASE("the moe_topk_gate_fwd tests catch every mutant", "[moe_topk_gate_fwd][mutants]") {
  const std::string op = "moe_topk_gate_fwd";
  const auto cases = moe_topk_gate_fwd_cases();
  const auto caught = [&](const Mistake& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  for (const char* name :
       {"bias", "image_token_mask", "mask", "fix_routing_mask", "to_physical_map"}) {
    CAPTURE(name);
    CHECK(caught(without(name)));
  }
  CHECK(caught(with_param("routed_scaling_factor", 1.0)));
  CHECK(caught(with_param("ep_rank", int64_t{0})));
  CHECK(caught([](HostTensors& in, Params&) {  // equal keys in descending order of experts
    HostTensor& logits = in["logits"];
    const int64_t experts = logits.shape()[1];
    for (int64_t i = 0; i < logits.size(); ++i) {
      logits.set_value(i, logits.value(i) + 1e-5 * static_cast<double>(i % experts));
    }
  }));
  // the shared slots weigh nothing
  CHECK(is_caught(op, cases, misled(op, [](HostTensors&, Params& params) {
                    if (params.contains("use_shared_as_routed")) {
                      params["num_shared_experts"] = int64_t{1};
                    }
                  })));
}

TEST_CASE("the moe_topk_gate_bwd tests catch every mutant", "[moe_topk_gate_bwd][mutants]") {
  const std::string op = "moe_topk_gate_bwd";
  const auto cases = moe_topk_gate_bwd_cases();
  const auto caught = [&](const Mistake& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught(without("grad_scores_sum")));
  CHECK(caught(without("mask")));
  CHECK(caught(with_param("routed_scaling_factor", 1.0)));
  CHECK(caught([](HostTensors& in, Params&) {  // the first of repeated experts only
    HostTensor& ids = in["topk_idx"];
    const int64_t topk = ids.shape()[1];
    for (int64_t i = 0; i < ids.size(); ++i) {
      for (int64_t j = i / topk * topk; j < i; ++j) {
        if (ids.bits(j) == ids.bits(i)) ids.set_value(i, -1);
      }
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // the weights are no part of their sum
    for (int64_t i = 0; i < in["topk_weights"].size(); ++i) in["topk_weights"].set_value(i, 0);
  }));
}

TEST_CASE("the gate_scores_sum tests catch every mutant", "[gate_scores_sum][mutants]") {
  const std::string op = "gate_scores_sum";
  const auto cases = gate_scores_sum_cases();
  CHECK_FALSE(is_caught(op, cases, misled(op, [](HostTensors&, Params&) {})));
  CHECK(is_caught(op, cases, misled(op, without("mask"))));
  CHECK(is_caught(op, cases, misled(op, [](HostTensors& in, Params&) {  // tokens in another order
                    HostTensor& scores = in["scores"];
                    const int64_t experts = scores.shape()[1], tokens = scores.shape()[0];
                    if (tokens != 200) return;
                    for (int64_t e = 0; e < experts; ++e) {
                      const uint64_t first = scores.bits(e);
                      scores.set_bits(e, scores.bits(65 * experts + e));
                      scores.set_bits(65 * experts + e, first);
                    }
                  })));
}

TEST_CASE("moe_topk_gate_bwd gives the slopes of moe_topk_gate_fwd", "[moe_topk_gate_bwd]") {
  // The loss is the sum of g w over the slots, and of h u / U over all experts.
  const int64_t experts = 16, topk = 4;
  const double factor = 1.5;
  const HostTensor logits = random_tensor(DType::f32, {1, experts}, Values::normal, 3);
  const HostTensor g = random_tensor(DType::f32, {1, topk}, Values::normal, 4);
  const HostTensor h = random_tensor(DType::f32, {1, experts}, Values::normal, 5);
  const auto run = op_runner("moe_topk_gate_fwd", Device::cpu());
  const HostTensors saved =
      run({{"logits", logits}},
          {{"num_topk", topk}, {"save_scores", true}, {"routed_scaling_factor", factor}});
  HostTensors in = {{"grad_topk_weights", g},
                    {"mask", tensor_of(DType::boolean, {1}, {1})},
                    {"grad_scores_sum", h}};
  for (const char* name : {"scores", "topk_idx", "topk_weights"}) in[name] = saved.at(name);
  const HostTensors out =
      op_runner("moe_topk_gate_bwd", Device::cpu())(in, {{"routed_scaling_factor", factor}});
  const auto loss = [&](int64_t moved, double by) {
    std::vector<double> u;
    double all = 0, chosen = 1e-20, sum = 0;
    for (int64_t e = 0; e < experts; ++e) {
      const double x = logits.value(e) + (e == moved ? by : 0);
      u.push_back(std::sqrt(std::log1p(std::exp(x))));
      all += u.back();
    }
    const auto of_slot = [&](int64_t k) {
      return u[static_cast<size_t>(saved.at("topk_idx").value(k))];
    };
    for (int64_t k = 0; k < topk; ++k) chosen += of_slot(k);
    for (int64_t k = 0; k < topk; ++k) sum += g.value(k) * factor * of_slot(k) / chosen;
    for (int64_t e = 0; e < experts; ++e) sum += h.value(e) * u[static_cast<size_t>(e)] / all;
    return sum;
  };
  for (int64_t e = 0; e < experts; ++e) {
    const double slope = (loss(e, 1e-5) - loss(e, -1e-5)) / 2e-5;
    CHECK(out.at("grad_logits").value(e) == Approx(slope).margin(2e-6));
  }
}

TEST_CASE("the gate explains wrong arguments", "[moe_topk_gate_fwd][errors]") {
  const HostTensors inputs = {{"logits", HostTensor(DType::f32, {5, 64})}};
  const auto told = [](const HostTensors& given, Params params) {
    params.try_emplace("num_topk", int64_t{6});
    return outputs_error("moe_topk_gate_fwd", given, params);
  };
  CHECK(told(inputs, {}) == "no error");
  CHECK(told(with(inputs, "image_bias", HostTensor(DType::f32, {64})), {}) ==
        "tessera: moe_topk_gate_fwd: argument 'image_token_mask' is missing\n"
        "  expected  a tensor named image_token_mask where image_bias\n"
        "  got       image_bias of f32");
  CHECK(told(with(inputs, "fix_routing_mask", HostTensor(DType::boolean, {5})), {}) ==
        "tessera: moe_topk_gate_fwd: 'fix_routing_mask' needs 'unmapped_topk_idx'\n"
        "  expected  unmapped_topk_idx where fix_routing_mask\n"
        "  got       no unmapped_topk_idx, fix_routing_mask of bool");
  CHECK(told(inputs, {{"num_topk", int64_t{31}},
                      {"use_shared_as_routed", true},
                      {"num_shared_experts", int64_t{2}}}) ==
        "tessera: moe_topk_gate_fwd: 'num_topk' and shared experts are too many for a token\n"
        "  expected  K + S <= 32\n"
        "  got       K = 31, S = 2");
  CHECK(outputs_error("gate_scores_sum",
                      {{"scores", HostTensor(DType::f32, {5, 64})},
                       {"mask", HostTensor(DType::boolean, {5})}},
                      {{"num_seqs", int64_t{2}}}) ==
        "tessera: gate_scores_sum: parameter 'num_seqs' does not divide the tokens\n"
        "  expected  T % Q = 0\n"
        "  got       T = 5 from scores dim 0, Q = 2");
}
