// Routing by a table on the executor: the references, the mistakes that their cases catch, what bad
// calls are told.

#include <algorithm>
#include <cmath>

#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

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

HostTensors gate_inputs() {
  return {{"token_ids", HostTensor(DType::i64, {5})},
          {"table", HostTensor(DType::i32, {9, 6})},
          {"logits", HostTensor(DType::f32, {5, 64})}};
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

}  // namespace

TEST_CASE("hash_gate equals its reference on the executor", "[hash_gate]") {
  check_cases("hash_gate", hash_gate_cases());
}

TEST_CASE("mask_padded_topk equals its reference on the executor", "[mask_padded_topk]") {
  check_cases("mask_padded_topk", mask_padded_topk_cases());
}

TEST_CASE("the hash_gate tests catch every mutant", "[hash_gate][mutants]") {
  const std::string op = "hash_gate";
  const auto cases = hash_gate_cases();
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught([](HostTensors& in, Params&) { in.erase("num_tokens"); }));
  CHECK(caught([](HostTensors&, Params& params) { params["scale"] = std::string("shared"); }));
  CHECK(caught([](HostTensors&, Params& params) { params["scale"] = std::string("routed"); }));
  CHECK(caught([](HostTensors&, Params& params) { params["routed_scaling_factor"] = 1.0; }));
  CHECK(caught([](HostTensors& in, Params&) {  // ids of 32 bits
    HostTensor& ids = in["token_ids"];
    for (int64_t i = 0; i < ids.size(); ++i) {
      ids.set_value(i, static_cast<int32_t>(static_cast<uint32_t>(ids.bits(i))));
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // unknown tokens are the first one
    HostTensor& ids = in["token_ids"];
    const auto entries = static_cast<double>(in["table"].shape()[0]);
    for (int64_t i = 0; i < ids.size(); ++i) {
      if (ids.value(i) < 0 || ids.value(i) >= entries) ids.set_value(i, 0);
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // experts are clamped
    HostTensor& table = in["table"];
    const auto last = static_cast<double>(in["logits"].shape()[1] - 1);
    for (int64_t i = 0; i < table.size(); ++i) {
      table.set_value(i, std::min(std::max(table.value(i), 0.0), last));
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // infinite logits are large ones
    HostTensor& logits = in["logits"];
    for (int64_t i = 0; i < logits.size(); ++i) {
      if (!std::isfinite(logits.value(i))) logits.set_value(i, 80);
    }
  }));
  // a slot without an expert keeps the weight of a score of 0.5
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors&, HostTensors& out) {
                    for (int64_t i = 0; i < out["topk_idx"].size(); ++i) {
                      if (out["topk_idx"].value(i) < 0) out["topk_weights"].set_value(i, 0.5);
                    }
                  })));
  // a slot without an expert empties the row
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors&, HostTensors& out) {
                    HostTensor& ids = out["topk_idx"];
                    const int64_t slots = ids.shape()[1];
                    for (int64_t i = 0; i < ids.size(); ++i) {
                      if (ids.value(i) >= 0) continue;
                      for (int64_t k = 0; k < slots; ++k) ids.set_value(i / slots * slots + k, -1);
                    }
                  })));
}

TEST_CASE("the mask_padded_topk tests catch every mutant", "[mask_padded_topk][mutants]") {
  const std::string op = "mask_padded_topk";
  const auto cases = mask_padded_topk_cases();
  for (const double off : {-1.0, 1.0}) {
    CHECK(is_caught(op, cases, misled(op, [off](HostTensors& in, Params&) {
                      HostTensor& count = in["num_tokens"];
                      count.set_value(0, count.value(0) + off);
                    })));
  }
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {
                    if (in.contains("topk_weights")) out["topk_weights"] = in.at("topk_weights");
                  })));
}

TEST_CASE("hash_gate explains wrong arguments", "[hash_gate][errors]") {
  const auto told = [](const HostTensors& inputs, const Params& params = {}) {
    return outputs_error("hash_gate", inputs, params);
  };
  CHECK(told(gate_inputs()) == "no error");
  CHECK(told(with(gate_inputs(), "logits", HostTensor(DType::f32, {4, 64}))) ==
        "tessera: hash_gate: argument 'logits' has the wrong shape\n"
        "  expected  f32[5, E]   (T = 5 from token_ids dim 0)\n"
        "  got       f32[4, 64] on cpu");
  CHECK(told(with(gate_inputs(), "table", HostTensor(DType::i64, {9, 6}))) ==
        "tessera: hash_gate: argument 'table' has the wrong dtype\n"
        "  expected  i32\n"
        "  got       i64[9, 6] on cpu");
  CHECK(told(gate_inputs(), {{"num_shared_experts", int64_t{27}}}) ==
        "tessera: hash_gate: parameter 'num_shared_experts' leaves too many slots for a token\n"
        "  expected  K + S <= 32\n"
        "  got       K = 6 from table dim 1, S = 27");
  CHECK(told(gate_inputs(), {{"num_shared_experts", int64_t{-1}}}) ==
        "tessera: hash_gate: parameter 'num_shared_experts' is out of range\n"
        "  expected  num_shared_experts >= 0\n"
        "  got       num_shared_experts = -1");
  CHECK(told(with(gate_inputs(), "table", HostTensor(DType::i32, {0, 6}))) ==
        "tessera: hash_gate: argument 'table' has no rows\n"
        "  expected  V >= 1\n"
        "  got       V = 0 from table dim 0");
  CHECK(told(gate_inputs(), {{"scale", std::string("both")}}) ==
        "tessera: hash_gate: parameter 'scale' has a wrong value\n"
        "  expected  {shared, routed}\n"
        "  got       both");
}

TEST_CASE("mask_padded_topk explains wrong arguments", "[mask_padded_topk][errors]") {
  const HostTensors inputs = {{"num_tokens", HostTensor(DType::i32, {1})},
                              {"topk_idx", HostTensor(DType::i32, {5, 6})}};
  const auto told = [](const HostTensors& tensors) {
    return outputs_error("mask_padded_topk", tensors, {});
  };
  CHECK(told(inputs) == "no error");
  CHECK(told(with(inputs, "num_tokens", HostTensor(DType::i32, {2}))) ==
        "tessera: mask_padded_topk: argument 'num_tokens' has the wrong shape\n"
        "  expected  i32[1]\n"
        "  got       i32[2] on cpu");
  CHECK(told(with(inputs, "topk_weights", HostTensor(DType::f32, {5, 7}))) ==
        "tessera: mask_padded_topk: argument 'topk_weights' has the wrong shape\n"
        "  expected  f32[5, 6]   (T = 5 from topk_idx dim 0; K = 6 from topk_idx dim 1)\n"
        "  got       f32[5, 7] on cpu");
}
