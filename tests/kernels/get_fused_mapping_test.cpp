// get_fused_mapping on the executor: the reference, the counts that C++ callers get, mutants, then
// what bad calls are told.

#include <functional>

#include "kernels/jit/target.h"
#include "kernels/op.h"
#include "kernels/ops.h"
#include "tests/support/catch.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

const std::string kOp = "get_fused_mapping";

HostTensor routing(std::vector<int64_t> ids, int64_t topk) {
  HostTensor topk_idx(DType::i64, {std::ssize(ids) / topk, topk});
  for (int64_t i = 0; i < std::ssize(ids); ++i) {
    topk_idx.set_bits(i, static_cast<uint64_t>(ids[static_cast<size_t>(i)]));
  }
  return topk_idx;
}

HostTensor i32(int64_t size) {
  return HostTensor(DType::i32, {size});
}

}  // namespace

TEST_CASE("get_fused_mapping sorts like its reference on the executor, with clusters and without",
          "[get_fused_mapping][slow]") {
  const kernels::jit::TargetScope scope({GENERATE(8, 9), 0, 0});
  const auto cases = get_fused_mapping_cases();
  const CaseReport report = run_cases(kOp, cases, op_runner(kOp, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("get_fused_mapping takes one kernel where there are clusters of 16",
          "[get_fused_mapping]") {
  const auto kernels_for = [](int64_t pairs, int major, int minor = 0, int64_t experts = 9) {
    const kernels::jit::TargetScope scope({major, minor, 0});
    const TensorView topk_idx(nullptr, DType::i64, {pairs, 1}, Device::cpu());
    const kernels::OpInfo& op = kernels::find_op(kOp);
    return op.kernels(
        {{"topk_idx", topk_idx}},
        kernels::check_params(op, {{"num_experts", experts}, {"alignment", int64_t{16}}}));
  };
  CHECK(kernels_for(512, 8, 0, 1024).size() == 1);
  CHECK(kernels_for(512, 8, 6, 512).size() == 1);
  CHECK(kernels_for(512, 8, 6, 1024).size() ==
        3);  // shared memory is too small for one block's table
  CHECK(kernels_for(2048, 8).size() == 1);
  CHECK(kernels_for(2048, 9)[0].cluster == 1);
  CHECK(kernels_for(2049, 8).size() == 3);
  CHECK(kernels_for(2049, 12).size() == 3);  // clusters of 8
  for (const int major : {9, 10}) {
    REQUIRE(kernels_for(2049, major).size() == 1);
    CHECK(kernels_for(int64_t{1} << 16, major)[0].cluster == 16);
    CHECK(kernels_for((int64_t{1} << 16) + 1, major).size() == 3);
  }
}

TEST_CASE("the C++ function writes the positions and the padded counts", "[get_fused_mapping]") {
  const HostTensor topk_idx = routing({2, 0, -1, 2, 2, 1}, 2);
  const kernels::OpInfo& op = kernels::find_op(kOp);
  const int64_t bound =
      op.outputs(
            {{"topk_idx", topk_idx.view()}},
            kernels::check_params(op, {{"num_experts", int64_t{3}}, {"alignment", int64_t{4}}}))
          .front()
          .shape[0];
  CHECK(bound == 12);  // (6 pairs + 3 * 3 rows of padding) / 4 * 4
  const HostTensor to_expert = i32(bound), to_token = i32(bound), to_pair = i32(bound);
  const HostTensor positions(DType::i32, {3, 2}), start = i32(3), end = i32(3), size = i32(3);
  kernels::GetFusedMapping call = {.topk_idx = topk_idx.view(),
                                   .pos_to_expert = to_expert.view(),
                                   .pos_to_token = to_token.view(),
                                   .pos_to_token_topk = to_pair.view(),
                                   .token_topk_to_pos = positions.view(),
                                   .expert_start = start.view(),
                                   .expert_end = end.view(),
                                   .num_tokens_per_expert = size.view(),
                                   .num_experts = 3,
                                   .alignment = 4};
  kernels::get_fused_mapping(call, nullptr);
  for (int64_t e = 0; e < 3; ++e) CHECK(size.value(e) == 4);
  const int kExperts[] = {0, -1, -1, -1, 1, -1, -1, -1, 2, 2, 2, -1};
  const int kPairs[] = {1, -1, -1, -1, 5, -1, -1, -1, 0, 3, 4, -1};
  for (int64_t p = 0; p < bound; ++p) {
    CHECK(to_expert.value(p) == kExperts[p]);
    CHECK(to_pair.value(p) == kPairs[p]);
    CHECK(to_token.value(p) == (kPairs[p] < 0 ? -1 : kPairs[p] / 2));
  }
  call.num_expanded_tokens = bound;
  kernels::get_fused_mapping(call, nullptr);
  for (int64_t e = 0; e < 3; ++e) CHECK(size.value(e) == 4);
}

TEST_CASE("the get_fused_mapping tests catch every mutant", "[get_fused_mapping][mutants][slow]") {
  const auto cases = get_fused_mapping_cases();
  const auto caught = [&](const std::function<void(HostTensors&, const Params&)>& mistake) {
    const reference::Runner mutant = [&](const HostTensors& inputs, const Params& params) {
      HostTensors outputs = reference::runner(kOp)(inputs, params);
      mistake(outputs, params);
      return outputs;
    };
    return is_caught(kOp, cases, mutant);
  };
  CHECK(caught([](HostTensors& out, const Params&) {  // ends without padding
    for (int64_t e = 0; e < out["expert_end"].size(); ++e) {
      out["expert_end"].set_value(e, out["expert_end"].value(e) - 1);
    }
  }));
  CHECK(caught([](HostTensors& out, const Params&) {  // padding belongs to the expert
    HostTensor& experts = out["pos_to_expert"];
    for (int64_t p = 1; p < experts.size(); ++p) {
      if (experts.value(p) < 0) experts.set_value(p, experts.value(p - 1));
    }
  }));
  CHECK(caught([](HostTensors& out, const Params&) {  // dropped pairs keep their position
    HostTensor& positions = out["token_topk_to_pos"];
    for (int64_t n = 0; n < positions.size(); ++n) {
      if (positions.value(n) < 0) positions.set_value(n, 0);
    }
  }));
  CHECK(caught([](HostTensors& out, const Params& params) {  // counts clipped to the capacity
    const auto found = params.find("num_expanded_tokens");
    if (found == params.end()) return;
    const auto capacity = static_cast<double>(std::get<int64_t>(found->second));
    for (int64_t e = 0; e < out["expert_end"].size(); ++e) {
      out["expert_end"].set_value(e, std::min(out["expert_end"].value(e), capacity));
    }
  }));
}

TEST_CASE("get_fused_mapping explains wrong arguments", "[get_fused_mapping][errors]") {
  const HostTensors inputs = {{"topk_idx", routing({0, 1, 2, -1}, 2)}};
  const auto told = [&](std::map<std::string, int64_t> values) {
    Params params = {{"num_experts", int64_t{3}}, {"alignment", int64_t{16}}};
    for (const auto& [name, value] : values) params[name] = value;
    return outputs_error(kOp, inputs, params);
  };
  CHECK(told({}) == "no error");
  CHECK(told({{"alignment", 0}}) ==
        "tessera: get_fused_mapping: parameter 'alignment' has a wrong value\n"
        "  expected  int >= 1\n"
        "  got       0");
  CHECK(told({{"num_experts", 1025}}) ==
        "tessera: get_fused_mapping: parameter 'num_experts' is out of range\n"
        "  expected  1 .. 1024\n"
        "  got       1025");
  CHECK(told({{"num_expanded_tokens", -1}}) ==
        "tessera: get_fused_mapping: parameter 'num_expanded_tokens' has a wrong value\n"
        "  expected  int >= 0\n"
        "  got       -1");
  CHECK(outputs_error(kOp, {{"topk_idx", i32(4)}},
                      {{"num_experts", int64_t{3}}, {"alignment", int64_t{1}}}) ==
        "tessera: get_fused_mapping: argument 'topk_idx' has the wrong dtype\n"
        "  expected  i64\n"
        "  got       i32[4] on cpu");
  // the pos arrays of a call with a capacity have that length
  const HostTensor short_one = i32(7), two(DType::i32, {2, 2}), three = i32(3);
  kernels::Tensors views = {{"topk_idx", inputs.at("topk_idx").view()},
                            {"pos_to_expert", short_one.view()},
                            {"pos_to_token", short_one.view()},
                            {"pos_to_token_topk", short_one.view()},
                            {"token_topk_to_pos", two.view()},
                            {"expert_start", three.view()},
                            {"expert_end", three.view()},
                            {"num_tokens_per_expert", three.view()}};
  CHECK(run_error(kOp, views,
                  {{"num_experts", int64_t{3}},
                   {"alignment", int64_t{1}},
                   {"num_expanded_tokens", int64_t{8}}}) ==
        "tessera: get_fused_mapping: argument 'pos_to_expert' has the wrong shape\n"
        "  expected  i32[8]   (P = 8)\n"
        "  got       i32[7] on cpu");
}
