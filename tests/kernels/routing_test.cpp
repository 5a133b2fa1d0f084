// The small ops around a routing on the executor: the references, then what bad calls are told.

#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

}  // namespace

TEST_CASE("normalize_weight equals its reference on the executor", "[normalize_weight]") {
  check_cases("normalize_weight", normalize_weight_cases());
}

TEST_CASE("normalize_weight explains wrong arguments", "[normalize_weight][errors]") {
  const auto told = [](const HostTensors& inputs) {
    return outputs_error("normalize_weight", inputs, {});
  };
  CHECK(told({{"topk_weights", HostTensor(DType::f32, {4, 6})}}) == "no error");
  CHECK(told({}) ==
        "tessera: normalize_weight: argument 'topk_weights' is missing\n"
        "  expected  a tensor named topk_weights\n"
        "  got       no tensors");
  CHECK(told({{"topk_weights", HostTensor(DType::bf16, {4, 6})}}) ==
        "tessera: normalize_weight: argument 'topk_weights' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       bf16[4, 6] on cpu");
  CHECK(told({{"topk_weights", HostTensor(DType::f32, {4})}}) ==
        "tessera: normalize_weight: argument 'topk_weights' has the wrong rank\n"
        "  expected  f32[T, K]\n"
        "  got       f32[4] on cpu");
  CHECK(told({{"topk_weights", HostTensor(DType::f32, {4, 6}, {8, 1})}}) ==
        "tessera: normalize_weight: argument 'topk_weights' has the wrong strides\n"
        "  expected  row-major strides [6, 1]\n"
        "  got       f32[4, 6], strides [8, 1] on cpu");
  const HostTensor weights(DType::f32, {4, 6}), denominator(DType::f32, {5});
  CHECK(run_error("normalize_weight",
                  {{"topk_weights", weights.view()},
                   {"denominator", denominator.view()},
                   {"normalized_weights", HostTensor(DType::f32, {4, 6}).view()}},
                  {}) ==
        "tessera: normalize_weight: argument 'denominator' has the wrong shape\n"
        "  expected  f32[4]   (T = 4 from topk_weights dim 0)\n"
        "  got       f32[5] on cpu");
}

TEST_CASE("mask_indices_by_tp equals its reference on the executor", "[mask_indices_by_tp]") {
  check_cases("mask_indices_by_tp", mask_indices_by_tp_cases());
}

TEST_CASE("mask_indices_by_tp explains wrong arguments", "[mask_indices_by_tp][errors]") {
  const auto told = [](DType dtype, int64_t num_experts, int64_t num_ep_ranks, int64_t tp_rank,
                       int64_t num_tp_ranks) {
    return outputs_error("mask_indices_by_tp", {{"indices", HostTensor(dtype, {4, 6})}},
                         {{"num_experts", num_experts},
                          {"num_ep_ranks", num_ep_ranks},
                          {"tp_rank", tp_rank},
                          {"num_tp_ranks", num_tp_ranks}});
  };
  CHECK(told(DType::i64, 72, 8, 1, 2) == "no error");
  CHECK(told(DType::f32, 72, 8, 1, 2) ==
        "tessera: mask_indices_by_tp: argument 'indices' has the wrong dtype\n"
        "  expected  i64|i32\n"
        "  got       f32[4, 6] on cpu");
  CHECK(told(DType::i64, 0, 8, 1, 2) ==
        "tessera: mask_indices_by_tp: parameter 'num_experts' has a wrong value\n"
        "  expected  int >= 1\n"
        "  got       0");
  CHECK(told(DType::i64, 72, 73, 1, 2) ==
        "tessera: mask_indices_by_tp: parameter 'num_ep_ranks' is out of range\n"
        "  expected  num_ep_ranks <= num_experts\n"
        "  got       num_ep_ranks = 73, num_experts = 72");
  CHECK(told(DType::i64, 72, 8, 2, 2) ==
        "tessera: mask_indices_by_tp: parameter 'tp_rank' is out of range\n"
        "  expected  0 <= tp_rank < num_tp_ranks\n"
        "  got       tp_rank = 2, num_tp_ranks = 2");
  CHECK(told(DType::i64, 72, 8, -1, 2) ==
        "tessera: mask_indices_by_tp: parameter 'tp_rank' is out of range\n"
        "  expected  0 <= tp_rank < num_tp_ranks\n"
        "  got       tp_rank = -1, num_tp_ranks = 2");
}

TEST_CASE("topk_sum_and_topk_group_idx picks the reference's groups on the executor",
          "[topk_sum_and_topk_group_idx]") {
  check_cases("topk_sum_and_topk_group_idx", topk_sum_and_topk_group_idx_cases());
}

TEST_CASE("topk_sum_and_topk_group_idx explains wrong arguments",
          "[topk_sum_and_topk_group_idx][errors]") {
  const auto told = [](Dims shape, int64_t num_topk_sum, int64_t num_topk_groups) {
    return outputs_error("topk_sum_and_topk_group_idx", {{"scores", HostTensor(DType::f32, shape)}},
                         {{"num_topk_sum", num_topk_sum}, {"num_topk_groups", num_topk_groups}});
  };
  CHECK(told({4, 8, 9}, 2, 4) == "no error");
  CHECK(told({4, 72}, 2, 4) ==
        "tessera: topk_sum_and_topk_group_idx: argument 'scores' has the wrong rank\n"
        "  expected  f32[T, G, E/G]\n"
        "  got       f32[4, 72] on cpu");
  CHECK(told({4, 8, 9}, 3, 4) ==
        "tessera: topk_sum_and_topk_group_idx: parameter 'num_topk_sum' has a wrong value\n"
        "  expected  {1, 2}\n"
        "  got       3");
  CHECK(told({4, 8, 1}, 2, 4) ==
        "tessera: topk_sum_and_topk_group_idx: 'scores' has too few members per group\n"
        "  expected  num_topk_sum <= members\n"
        "  got       num_topk_sum = 2, members = 1");
  CHECK(told({4, 33, 2}, 2, 4) ==
        "tessera: topk_sum_and_topk_group_idx: argument 'scores': too many groups\n"
        "  expected  G <= 32\n"
        "  got       G = 33 from scores dim 1");
  CHECK(told({4, 8, 9}, 2, 9) ==
        "tessera: topk_sum_and_topk_group_idx: parameter 'num_topk_groups' is out of range\n"
        "  expected  1 .. 8\n"
        "  got       9");
  CHECK(told({4, 0, 9}, 2, 1) ==
        "tessera: topk_sum_and_topk_group_idx: 'scores' has too few members per group\n"
        "  expected  num_topk_sum <= members\n"
        "  got       num_topk_sum = 2, members = 0");
}

TEST_CASE("group_count equals its reference on the executor", "[group_count]") {
  check_cases("group_count", group_count_cases());
}

TEST_CASE("group_count explains wrong arguments", "[group_count][errors]") {
  const auto told = [](DType dtype, Dims shape, int64_t num_groups) {
    return outputs_error("group_count", {{"group_idx", HostTensor(dtype, shape)}},
                         {{"num_groups", num_groups}});
  };
  CHECK(told(DType::i64, {4, 6}, 9) == "no error");
  CHECK(told(DType::i32, {4, 6}, 9) ==
        "tessera: group_count: argument 'group_idx' has the wrong dtype\n"
        "  expected  i64\n"
        "  got       i32[4, 6] on cpu");
  CHECK(told(DType::i64, {24}, 9) ==
        "tessera: group_count: argument 'group_idx' has the wrong rank\n"
        "  expected  i64[T, K]\n"
        "  got       i64[24] on cpu");
  CHECK(told(DType::i64, {4, 6}, 0) ==
        "tessera: group_count: parameter 'num_groups' has a wrong value\n"
        "  expected  int >= 1\n"
        "  got       0");
  CHECK(told(DType::i64, {4, 6}, 536'862'721) ==
        "tessera: group_count: argument 'num_groups': so many groups are not supported\n"
        "  expected  num_groups <= 536862720\n"
        "  got       num_groups = 536862721");
}

TEST_CASE("aux_fi equals its reference on the executor", "[aux_fi][slow]") {
  check_cases("aux_fi", aux_fi_cases());
}

TEST_CASE("aux_fi explains wrong arguments", "[aux_fi][errors]") {
  const auto told = [](DType dtype, int64_t num_experts, int64_t num_aux_topk) {
    return outputs_error("aux_fi", {{"topk_idx", HostTensor(dtype, {4, 6})}},
                         {{"num_experts", num_experts}, {"num_aux_topk", num_aux_topk}});
  };
  CHECK(told(DType::i64, 9, 2) == "no error");
  CHECK(told(DType::i32, 9, 2) ==
        "tessera: aux_fi: argument 'topk_idx' has the wrong dtype\n"
        "  expected  i64\n"
        "  got       i32[4, 6] on cpu");
  CHECK(told(DType::i64, 0, 2) ==
        "tessera: aux_fi: parameter 'num_experts' has a wrong value\n"
        "  expected  int >= 1\n"
        "  got       0");
  CHECK(told(DType::i64, 9, 0) ==
        "tessera: aux_fi: parameter 'num_aux_topk' has a wrong value\n"
        "  expected  int >= 1\n"
        "  got       0");
  CHECK(told(DType::i64, 9, 2'147'483'648) ==
        "tessera: aux_fi: parameter 'num_aux_topk' beyond this limit is not supported\n"
        "  expected  num_aux_topk <= 2147483647\n"
        "  got       num_aux_topk = 2147483648");
}

TEST_CASE("inplace_unique_group_indices equals its reference on the executor",
          "[inplace_unique_group_indices]") {
  check_cases("inplace_unique_group_indices", inplace_unique_group_indices_cases());
}

TEST_CASE("inplace_unique_group_indices explains wrong arguments",
          "[inplace_unique_group_indices][errors]") {
  const auto told = [](DType dtype, Dims shape, int64_t num_groups) {
    return outputs_error("inplace_unique_group_indices",
                         {{"group_indices", HostTensor(dtype, shape)}},
                         {{"num_groups", num_groups}});
  };
  CHECK(told(DType::i64, {4, 6}, 128) == "no error");
  CHECK(told(DType::i32, {4, 6}, 9) ==
        "tessera: inplace_unique_group_indices: argument 'group_indices' has the wrong dtype\n"
        "  expected  i64\n"
        "  got       i32[4, 6] on cpu");
  CHECK(told(DType::i64, {24}, 9) ==
        "tessera: inplace_unique_group_indices: argument 'group_indices' has the wrong rank\n"
        "  expected  i64[T, K]\n"
        "  got       i64[24] on cpu");
  CHECK(told(DType::i64, {4, 6}, 0) ==
        "tessera: inplace_unique_group_indices: parameter 'num_groups' has a wrong value\n"
        "  expected  int 1..128\n"
        "  got       0");
  CHECK(told(DType::i64, {4, 6}, 129) ==
        "tessera: inplace_unique_group_indices: parameter 'num_groups' is out of range\n"
        "  expected  1 .. 128\n"
        "  got       129");
}

TEST_CASE("a gate looks at nothing of a padding row: NaN logits, ids that nothing has",
          "[top2_sum_gate][hash_gate]") {
  const auto check = [](const std::string& op, const HostTensors& clean, const HostTensors& padded,
                        const kernels::Params& params, int64_t padding) {
    const HostTensors want = op_runner(op, Device::cpu())(clean, params);
    const HostTensors got = op_runner(op, Device::cpu())(padded, params);
    for (const auto& [name, tensor] : want) {
      CAPTURE(op, name);
      const int64_t columns = tensor.shape()[1];
      for (int64_t i = 0; i < tensor.size(); ++i) {
        CHECK(got.at(name).bits(i) == tensor.bits(i));
        if (i / columns != padding) continue;
        CHECK(got.at(name).value(i) == (name == "topk_weights" ? 0 : -1));
      }
    }
  };
  const auto logits = [](double of_padding, int64_t padding) {
    return tensor_by(DType::f32, {3, 4}, [&](int64_t i) {
      return i / 4 == padding ? of_padding : static_cast<double>(i * 7 % 5);
    });
  };
  HostTensors clean = {{"bias", tensor_of(DType::f32, {4}, {0})},
                       {"mask", tensor_of(DType::boolean, {3}, {1, 0, 1})},
                       {"fix_routing_mask", tensor_of(DType::boolean, {3}, {1})}};
  HostTensors padded = clean;
  clean["logits"] = logits(0, 1);
  clean["unmapped_topk_idx"] = tensor_of(DType::i64, {3, 2}, {0, 1});
  padded["logits"] = logits(NAN, 1);
  padded["unmapped_topk_idx"] = tensor_of(DType::i64, {3, 2}, {0, 1, 99, -99, 0, 1});
  for (const char* scoring : {"sigmoid", "sqrtsoftplus", "softmax"}) {
    check("top2_sum_gate", clean, padded,
          {{"num_topk", int64_t{2}}, {"scoring_func", std::string(scoring)}}, 1);
  }
  clean = {{"table", tensor_of(DType::i32, {2, 2}, {0, 1, 2, 3})},
           {"num_tokens", tensor_of(DType::i32, {1}, {2})}};
  padded = clean;
  clean["token_ids"] = tensor_of(DType::i64, {3}, {0, 1, 0});
  clean["logits"] = logits(0, 2);
  padded["token_ids"] = tensor_of(DType::i64, {3}, {0, 1, -99});
  padded["logits"] = logits(NAN, 2);
  check("hash_gate", clean, padded, {}, 2);
}
