// top2_sum_gate on the executor: the reference, worked examples, then what bad calls are told.

#include <fmt/format.h>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

HostTensors inputs_of(int64_t tokens, int64_t experts) {
  HostTensors inputs = {{"logits", HostTensor(DType::f32, {tokens, experts})},
                        {"bias", HostTensor(DType::f32, {experts})}};
  inputs["logits"].fill_bytes(std::byte{0});
  inputs["bias"].fill_bytes(std::byte{0});
  return inputs;
}

Params top(int64_t num_topk) {
  return {{"num_topk", num_topk}, {"scoring_func", std::string("sigmoid")}};
}

std::string told(const HostTensors& inputs, const Params& params) {
  return outputs_error("top2_sum_gate", inputs, params);
}

}  // namespace

TEST_CASE("top2_sum_gate picks the reference's experts on the executor", "[top2_sum_gate]") {
  const auto cases = top2_sum_gate_cases();
  const CaseReport report =
      run_cases("top2_sum_gate", cases, op_runner("top2_sum_gate", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("equal scores are listed by expert and share the scale", "[top2_sum_gate]") {
  Params params = top(4);
  params["routed_scaling_factor"] = 2.0;
  const HostTensors got =
      run_op(kernels::find_op("top2_sum_gate"), inputs_of(2, 8), params, Device::cpu());
  for (int64_t i = 0; i < 8; ++i) {
    CHECK(got.at("topk_idx").value(i) == static_cast<double>(i % 4));
    CHECK(got.at("topk_weights").value(i) == 0.5);
  }
}

TEST_CASE("the replica of an expert is chosen in 64 bits", "[top2_sum_gate][slow]") {
  // (t * 23333) mod 7 at a row beyond 2^31 / 23333 = 92036.9
  constexpr int64_t kTokens = 92040;
  HostTensors inputs = inputs_of(kTokens, 1);
  inputs["to_physical_map"] = HostTensor(DType::i32, {1, 7});
  for (int64_t d = 0; d < 7; ++d) inputs["to_physical_map"].set_value(d, static_cast<double>(d));
  inputs["logical_count"] = HostTensor(DType::i32, {1});
  inputs["logical_count"].set_value(0, 7);
  const HostTensors got = run_op(kernels::find_op("top2_sum_gate"), inputs, top(1), Device::cpu());
  for (const int64_t t : {0L, 1L, 92036L, 92037L, 92039L}) {
    CHECK(got.at("topk_idx").value(t) == static_cast<double>(t * 23333 % 7));
  }
}

TEST_CASE("top2_sum_gate explains wrong parameters", "[top2_sum_gate][errors]") {
  const HostTensors inputs = inputs_of(4, 64);
  const auto with = [](std::map<std::string, int64_t> values) {
    Params params = top(6);
    for (const auto& [name, value] : values) params[name] = value;
    return params;
  };
  CHECK(told(inputs, top(6)) == "no error");
  CHECK(told(inputs, top(33)) ==
        "tessera: top2_sum_gate: parameter 'num_topk' is out of range\n"
        "  expected  1 .. 32\n"
        "  got       33");
  CHECK(told(inputs, {{"num_topk", int64_t{6}}, {"scoring_func", std::string("identity")}}) ==
        "tessera: top2_sum_gate: parameter 'scoring_func' has a wrong value\n"
        "  expected  {sigmoid, sqrtsoftplus, softmax}\n"
        "  got       identity");
  CHECK(told(inputs, with({{"num_groups", 8}})) ==
        "tessera: top2_sum_gate: 'num_groups' and 'num_topk_groups' go together\n"
        "  expected  (num_groups = 0) = (num_topk_groups = 0)\n"
        "  got       num_groups = 8, num_topk_groups = 0");
  CHECK(told(inputs, with({{"num_groups", 7}, {"num_topk_groups", 3}})) ==
        "tessera: top2_sum_gate: parameter 'num_groups' is out of range\n"
        "  expected  1 <= num_groups <= 32 and E % num_groups = 0 where num_groups != 0\n"
        "  got       num_groups = 7, E = 64 from logits dim 1");
  CHECK(told(inputs, with({{"num_groups", 8}, {"num_topk_groups", 9}})) ==
        "tessera: top2_sum_gate: parameter 'num_topk_groups' is out of range\n"
        "  expected  1 <= num_topk_groups <= num_groups where num_groups != 0\n"
        "  got       num_topk_groups = 9, num_groups = 8");
  // -1 and a product of 64 bits that wraps around to 16: winners * 16
  for (const int64_t winners : {int64_t{-1}, int64_t{-3458764513820540927}}) {
    CHECK(told(inputs, with({{"num_groups", 4}, {"num_topk_groups", winners}})) ==
          "tessera: top2_sum_gate: parameter 'num_topk_groups' is out of range\n"
          "  expected  1 <= num_topk_groups <= num_groups where num_groups != 0\n"
          "  got       num_topk_groups = " +
              std::to_string(winners) + ", num_groups = 4");
  }
  for (const int64_t groups : {int64_t{-8}, INT64_MIN}) {
    CHECK(told(inputs, with({{"num_groups", groups}, {"num_topk_groups", groups}})) ==
          fmt::format("tessera: top2_sum_gate: parameter 'num_topk_groups' is out of range\n"
                      "  expected  1 <= num_topk_groups <= num_groups where num_groups != 0\n"
                      "  got       num_topk_groups = {0}, num_groups = {0}",
                      groups));
  }
  CHECK(told(inputs, with({{"num_groups", 32}, {"num_topk_groups", 2}})) ==
        "tessera: top2_sum_gate: argument 'num_topk': 'num_topk_groups' leaves too few experts\n"
        "  expected  num_topk_groups * members >= num_topk where num_groups != 0\n"
        "  got       num_topk = 6, num_topk_groups = 2, members = 2, num_groups = 32");
  CHECK(told(inputs, with({{"num_groups", 1}, {"num_topk_groups", 1}})) ==
        "tessera: top2_sum_gate: 'num_groups' makes groups of the wrong size\n"
        "  expected  2 <= members <= 32 where num_groups != 0\n"
        "  got       members = 64, num_groups = 1");
  CHECK(told(inputs, with({{"num_ep_ranks", 3}})) ==
        "tessera: top2_sum_gate: parameter 'num_ep_ranks' is out of range\n"
        "  expected  num_ep_ranks >= 1 and physical % num_ep_ranks = 0\n"
        "  got       num_ep_ranks = 3, physical = 64");
  CHECK(told(inputs, with({{"num_ep_ranks", 4}, {"ep_rank", 4}})) ==
        "tessera: top2_sum_gate: parameter 'ep_rank' is out of range\n"
        "  expected  0 <= ep_rank < num_ep_ranks\n"
        "  got       ep_rank = 4, num_ep_ranks = 4");
  CHECK(told(inputs, with({{"num_tp_ranks", 2}, {"tp_rank", 2}})) ==
        "tessera: top2_sum_gate: parameter 'tp_rank' is out of range\n"
        "  expected  0 <= tp_rank < num_tp_ranks\n"
        "  got       tp_rank = 2, num_tp_ranks = 2");
  Params shared = top(6);
  shared["use_shared_as_routed"] = true;
  CHECK(told(inputs, shared) ==
        "tessera: top2_sum_gate: parameter 'num_shared_experts' is out of range\n"
        "  expected  num_shared_experts in {1, 2} where use_shared_as_routed\n"
        "  got       num_shared_experts = 0, use_shared_as_routed = true");
  shared["num_shared_experts"] = int64_t{1};
  CHECK(told(inputs, shared) ==
        "tessera: top2_sum_gate: 'num_shared_experts' does not fit num_topk and the experts\n"
        "  expected  K % S = 0 and E % (K / S) = 0 where use_shared_as_routed\n"
        "  got       K = 6, S = 1, E = 64 from logits dim 1, use_shared_as_routed = true");
  shared["num_topk"] = int64_t{8};
  CHECK(told(inputs, shared) ==
        "tessera: top2_sum_gate: shared experts need as many extra columns of 'to_physical_map'\n"
        "  expected  S <= physical - E where use_shared_as_routed\n"
        "  got       S = 1, physical = 64, E = 64 from logits dim 1, use_shared_as_routed = true");
}

TEST_CASE("a wrong num_shared_experts is named, not the tensors whose rows it counts",
          "[top2_sum_gate][errors]") {
  HostTensors inputs = inputs_of(4, 64);
  inputs["to_physical_map"] = HostTensor(DType::i32, {65, 2});
  inputs["logical_count"] = HostTensor(DType::i32, {65});
  Params params = top(8);
  params["use_shared_as_routed"] = true;
  for (const int64_t shared : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{3}, INT64_MAX}) {
    params["num_shared_experts"] = shared;
    CHECK(told(inputs, params) ==
          "tessera: top2_sum_gate: parameter 'num_shared_experts' is out of range\n"
          "  expected  num_shared_experts in {1, 2} where use_shared_as_routed\n"
          "  got       num_shared_experts = " +
              std::to_string(shared) + ", use_shared_as_routed = true");
  }
}

TEST_CASE("top2_sum_gate looks at no more replicas than there are", "[top2_sum_gate]") {
  HostTensors inputs = inputs_of(1, 4);
  inputs["to_physical_map"] = tensor_of(DType::i32, {4, 2}, {0, 99, 1, 99, 2, 99, 3, 4});
  inputs["logical_count"] = tensor_of(DType::i32, {4}, {1, 1, 1, 2});
  const auto got = op_runner("top2_sum_gate", Device::cpu())(inputs, top(2));
  CHECK(got.at("topk_idx").value(0) == 0);
  CHECK(got.at("topk_idx").value(1) == 1);
}

TEST_CASE("top2_sum_gate explains wrong tensors", "[top2_sum_gate][errors]") {
  HostTensors inputs = inputs_of(4, 64);
  inputs["bias"] = HostTensor(DType::f32, {63});
  CHECK(told(inputs, top(6)) ==
        "tessera: top2_sum_gate: argument 'bias' has the wrong shape\n"
        "  expected  f32[64]   (E = 64 from logits dim 1)\n"
        "  got       f32[63] on cpu");
  inputs = inputs_of(4, 64);
  inputs["fix_routing_mask"] = HostTensor(DType::boolean, {4});
  CHECK(told(inputs, top(6)) ==
        "tessera: top2_sum_gate: 'fix_routing_mask' needs 'unmapped_topk_idx'\n"
        "  expected  unmapped_topk_idx where fix_routing_mask\n"
        "  got       no unmapped_topk_idx, fix_routing_mask of bool");
  inputs["unmapped_topk_idx"] = HostTensor(DType::i32, {4, 6});
  CHECK(told(inputs, top(6)) ==
        "tessera: top2_sum_gate: argument 'unmapped_topk_idx' has the wrong dtype\n"
        "  expected  i64\n"
        "  got       i32[4, 6] on cpu");
  inputs = inputs_of(4, 64);
  inputs["logical_count"] = HostTensor(DType::i32, {64});
  CHECK(told(inputs, top(6)) ==
        "tessera: top2_sum_gate: argument 'to_physical_map' is missing\n"
        "  expected  a tensor named to_physical_map where logical_count\n"
        "  got       logical_count of i32");
  inputs["to_physical_map"] = HostTensor(DType::i32, {65, 3});
  CHECK(told(inputs, top(6)) ==
        "tessera: top2_sum_gate: argument 'to_physical_map' has the wrong shape\n"
        "  expected  i32[64, D]   (E+S = 64)\n"
        "  got       i32[65, 3] on cpu");
  CHECK(told(inputs_of(1, 5000), top(6)) ==
        "tessera: top2_sum_gate: argument 'logits': too many experts\n"
        "  expected  E <= 4096\n"
        "  got       E = 5000 from logits dim 1");
}
