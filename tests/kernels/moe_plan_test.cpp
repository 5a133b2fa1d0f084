// moe_plan on the executor: the reference, get_fused_mapping's order, the bound of the rows, mutants, what bad calls are told.

#include <algorithm>
#include <functional>

#include "kernels/jit/target.h"
#include "kernels/moe_rows.h"
#include "kernels/op.h"
#include "kernels/ops.h"
#include "tests/support/catch.h"
#include "tests/support/ops/expert_mapping.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

const std::string kOp = "moe_plan";

/// Rounds integers up to multiples of 16.
void round_up(HostTensor& tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto rounded = (static_cast<int64_t>(tensor.value(i)) + 15) / 16 * 16;
    tensor.set_value(i, static_cast<double>(rounded));
  }
}

std::string told_by_rows(const std::function<int64_t()>& rows) {
  try {
    return std::to_string(rows());
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("moe_plan sorts like its reference on the executor, with clusters and without",
          "[moe_plan][slow]") {
  const kernels::jit::TargetScope scope({GENERATE(8, 9), 0, 0});
  const auto cases = moe_plan_cases();
  const CaseReport report = run_cases(kOp, cases, op_runner(kOp, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("moe_plan has the order of get_fused_mapping", "[moe_plan][slow]") {
  for (const int64_t pairs : {0, 1, 4096, 1 << 20}) {
    for (const int64_t alignment : {1, 8, 128}) {
      if (pairs > 4096 && alignment != 8) continue;  // minutes
      CAPTURE(pairs, alignment);
      const int64_t experts = 24, topk = pairs == 1 ? 1 : 8;
      const HostTensor ids = random_topk_idx(pairs / topk, topk, experts, 3);
      const Params params = {{"num_experts", experts}, {"alignment", alignment}};
      const HostTensors mapping =
          op_runner("get_fused_mapping", Device::cpu())({{"topk_idx", ids}}, params);
      Params saving = params;
      saving["save_m_indices"] = true;
      const HostTensors plan = op_runner(kOp, Device::cpu())({{"topk_idx", ids}}, saving);
      CHECK(plan.at("pair_to_pos").raw() == mapping.at("token_topk_to_pos").raw());
      for (int64_t p = 0; p < plan.at("pos_to_pair").size(); ++p) {
        const bool is_mapped = p < mapping.at("pos_to_expert").size();
        if (plan.at("pos_to_pair").value(p) !=
                (is_mapped ? mapping.at("pos_to_token_topk").value(p) : -1) ||
            plan.at("m_indices").value(p) !=
                (is_mapped ? mapping.at("pos_to_expert").value(p) : -1)) {
          FAIL_CHECK("row " << p);
        }
      }
      for (int64_t e = 0; e < experts; ++e) {
        const double start = mapping.at("expert_start").value(e);
        const double count = plan.at("counts").value(e);
        CHECK(plan.at("psum").value(e) == start + count);
        const auto padded = (static_cast<int64_t>(count) + alignment - 1) / alignment * alignment;
        CHECK(mapping.at("num_tokens_per_expert").value(e) == static_cast<double>(padded));
      }
    }
  }
}

TEST_CASE("moe_rows is enough for any ids, and what moe_plan takes by itself", "[moe_plan]") {
  CHECK(kernels::moe_rows(64, 6, 256, 8) == 2176);
  CHECK(kernels::moe_rows(1, 6, 256, 8) == 48);
  CHECK(kernels::moe_rows(0, 6, 256, 8) == 0);
  CHECK(kernels::moe_rows(5, 0, 9, 16) == 0);
  CHECK(kernels::moe_rows(8192, 6, 256, 128) == 81664);
  Random random(8);
  for (int i = 0; i < 300; ++i) {
    const int64_t tokens = random.below(7), topk = 1 + random.below(4);
    const int64_t experts = 1 + random.below(9), alignment = 1 + random.below(20);
    const HostTensor ids = tensor_by(DType::i64, {tokens, topk}, [&](int64_t) {
      return static_cast<double>(random.below(experts + 1)) - 1;
    });
    const HostTensors plan = reference::runner(kOp)(
        {{"topk_idx", ids}}, {{"num_experts", experts}, {"alignment", alignment}});
    const int64_t rows = kernels::moe_rows(tokens, topk, experts, alignment);
    CHECK(plan.at("pos_to_pair").size() == rows);
    const double end = plan.at("psum").value(experts - 1);
    CHECK(end <= static_cast<double>(rows));
    int64_t placed = 0, wanted = 0;
    for (int64_t pair = 0; pair < ids.size(); ++pair) {
      placed += plan.at("pair_to_pos").value(pair) >= 0 ? 1 : 0;
      wanted += ids.value(pair) >= 0 ? 1 : 0;
    }
    CHECK(placed == wanted);
  }
  CHECK(told_by_rows([] { return kernels::moe_rows(1, 2, 3, 0); }) ==
        "tessera: moe_rows: argument 'alignment' is out of range\n"
        "  expected  1 .. 2130706431\n"
        "  got       0");
  CHECK(told_by_rows([] { return kernels::moe_rows(1 << 20, 1 << 20, 3, 1); }) ==
        "tessera: moe_rows: argument 'num_tokens' is out of range\n"
        "  expected  0 .. 2130706431\n"
        "  got       1099511627776");
}

TEST_CASE("the moe_plan tests catch every mutant", "[moe_plan][mutants][slow]") {
  const kernels::UncheckedValues as_on_a_gpu;
  const auto cases = moe_plan_cases();
  const auto misread = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    CHECK(is_caught(kOp, cases, misled(kOp, mistake)));
  };
  const auto miswritten =
      [&](const std::function<void(const HostTensors&, HostTensors&)>& mistake) {
        CHECK(is_caught(kOp, cases, spoiled(kOp, mistake)));
      };
  CHECK_FALSE(is_caught(kOp, cases, misled(kOp, [](HostTensors&, Params&) {})));
  misread([](HostTensors& in, Params&) { in.erase("num_tokens"); });
  misread([](HostTensors& in, Params&) {  // one token more
    if (in.contains("num_tokens")) in["num_tokens"].set_value(0, in["num_tokens"].value(0) + 1);
  });
  misread([](HostTensors& in, Params&) {  // ids of 64 bits are cut to 32
    HostTensor& ids = in["topk_idx"];
    for (int64_t i = 0; i < ids.size(); ++i) {
      const auto narrow = static_cast<int32_t>(ids.bits(i));
      if (ids.dtype() == DType::i64) ids.set_bits(i, static_cast<uint64_t>(int64_t{narrow}));
    }
  });
  miswritten(
      [](const HostTensors&, HostTensors& out) { round_up(out["counts"]); });  // with padding
  miswritten([](const HostTensors&, HostTensors& out) { round_up(out["psum"]); });
  miswritten([](const HostTensors&, HostTensors& out) {  // ends clipped to the rows
    const auto rows = static_cast<double>(out["pos_to_pair"].size());
    for (int64_t e = 0; e < out["psum"].size(); ++e) {
      out["psum"].set_value(e, std::min(out["psum"].value(e), rows));
    }
  });
  miswritten([](const HostTensors&, HostTensors& out) {  // dropped pairs keep a row
    HostTensor& rows = out["pair_to_pos"];
    for (int64_t i = 0; i < rows.size(); ++i) {
      if (rows.value(i) < 0) rows.set_value(i, 0);
    }
  });
  miswritten([](const HostTensors& in,
                HostTensors& out) {  // the weight of a row is that of its number
    if (!in.contains("topk_weights")) return;
    for (int64_t p = 0; p < out["row_weights"].size(); ++p) {
      if (out["pos_to_pair"].value(p) < 0) continue;
      out["row_weights"].set_bits(p, in.at("topk_weights").bits(p % in.at("topk_weights").size()));
    }
  });
  miswritten([](const HostTensors&, HostTensors& out) {  // padding belongs to the expert before
    if (!out.contains("m_indices")) return;
    HostTensor& ids = out["m_indices"];
    for (int64_t p = 1; p < ids.size(); ++p) {
      if (ids.value(p) < 0) ids.set_value(p, ids.value(p - 1));
    }
  });
}

TEST_CASE("moe_plan explains wrong arguments", "[moe_plan][errors]") {
  const HostTensors inputs = {{"topk_idx", tensor_of(DType::i32, {2, 2}, {0, 1, 2, -1})}};
  const auto told = [&](const HostTensors& given, std::map<std::string, int64_t> values) {
    Params params = {{"num_experts", int64_t{3}}, {"alignment", int64_t{16}}};
    for (const auto& [name, value] : values) params[name] = value;
    return outputs_error(kOp, given, params);
  };
  CHECK(told(inputs, {}) == "no error");
  CHECK(told(inputs, {{"alignment", 0}}) ==
        "tessera: moe_plan: parameter 'alignment' has a wrong value\n"
        "  expected  int >= 1\n"
        "  got       0");
  CHECK(told(inputs, {{"num_experts", 1025}}) ==
        "tessera: moe_plan: parameter 'num_experts' is out of range\n"
        "  expected  1 .. 1024\n"
        "  got       1025");
  HostTensors weighted = inputs;
  weighted["topk_weights"] = HostTensor(DType::f32, {2, 3});
  CHECK(told(weighted, {}) ==
        "tessera: moe_plan: argument 'topk_weights' has the wrong shape\n"
        "  expected  f32[2, 2]   (T = 2 from topk_idx dim 0; K = 2 from topk_idx dim 1)\n"
        "  got       f32[2, 3] on cpu");
  CHECK(told({{"topk_idx", HostTensor(DType::f32, {2, 2})}}, {}) ==
        "tessera: moe_plan: argument 'topk_idx' has the wrong dtype\n"
        "  expected  i32|i64\n"
        "  got       f32[2, 2] on cpu");
}
