// The Engram ops on the executor: the references, NaN and ties, then what bad calls are told.

#include <cmath>
#include <limits>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

HostTensors run_gate(const HostTensors& inputs, const Params& params) {
  return run_op(kernels::find_op("engram_gate_fwd"), inputs, params, Device::cpu());
}

HostTensors gate_inputs(int64_t tokens, int64_t streams, int64_t hidden) {
  return {
      {"hidden_states", random_tensor(DType::bf16, {tokens, streams, hidden}, Values::normal, 1)},
      {"k", random_tensor(DType::bf16, {tokens, streams, hidden}, Values::normal, 2)},
      {"v", random_tensor(DType::bf16, {tokens, hidden}, Values::normal, 3)},
      {"weight_fused", random_tensor(DType::f32, {streams, hidden}, Values::normal, 4)}};
}
const Params kEps = {{"eps", 1e-20}};

HostTensors hash_inputs() {
  return {{"ngram_token_ids", HostTensor(DType::i32, {4, 3})},
          {"multipliers", HostTensor(DType::i64, {2, 3})},
          {"vocab_sizes", HostTensor(DType::i32, {2, 2, 8})},
          {"offsets", HostTensor(DType::i32, {2, 16})}};
}

}  // namespace

TEST_CASE("engram_hash equals its reference on the executor", "[engram_hash]") {
  const auto cases = engram_hash_cases();
  const CaseReport report =
      run_cases("engram_hash", cases, op_runner("engram_hash", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("fused_weight equals its reference on the executor", "[fused_weight]") {
  const auto cases = fused_weight_cases();
  const CaseReport report =
      run_cases("fused_weight", cases, op_runner("fused_weight", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("fused_weight explains wrong arguments", "[fused_weight][errors]") {
  const auto told = [](const Dims& hidden, const Dims& embed) {
    return outputs_error("fused_weight",
                         {{"weight_hidden", HostTensor(DType::bf16, hidden)},
                          {"weight_embed", HostTensor(DType::bf16, embed)}},
                         {});
  };
  CHECK(told({4, 256}, {4, 256}) == "no error");
  CHECK(told({4, 128}, {4, 128}) ==
        "tessera: fused_weight: argument 'weight_hidden' has the wrong shape\n"
        "  expected  D % 256 = 0\n"
        "  got       D = 128 from weight_hidden dim 1");
  CHECK(
      told({4, 256}, {4, 512}) ==
      "tessera: fused_weight: argument 'weight_embed' has the wrong shape\n"
      "  expected  bf16[4, 256]   (hc = 4 from weight_hidden dim 0; D = 256 from weight_hidden dim "
      "1)\n"
      "  got       bf16[4, 512] on cpu");
}

TEST_CASE("engram_make_offsets equals its reference on the executor", "[engram_make_offsets]") {
  const auto cases = engram_make_offsets_cases();
  const CaseReport report =
      run_cases("engram_make_offsets", cases, op_runner("engram_make_offsets", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("engram_make_offsets explains wrong arguments", "[engram_make_offsets][errors]") {
  const auto told = [](HostTensor sizes) {
    return outputs_error("engram_make_offsets", {{"vocab_sizes", std::move(sizes)}}, {});
  };
  CHECK(told(HostTensor(DType::i32, {2, 2, 8})) == "no error");
  CHECK(told(HostTensor(DType::i64, {2, 2, 8})) ==
        "tessera: engram_make_offsets: argument 'vocab_sizes' has the wrong dtype\n"
        "  expected  i32\n"
        "  got       i64[2, 2, 8] on cpu");
  CHECK(told(HostTensor(DType::i32, {2, 16})) ==
        "tessera: engram_make_offsets: argument 'vocab_sizes' has the wrong rank\n"
        "  expected  i32[L, N-1, J]\n"
        "  got       i32[2, 16] on cpu");
}

TEST_CASE("engram_gate_fwd is close to its reference on the executor", "[engram_gate_fwd][slow]") {
  const auto cases = engram_gate_fwd_cases();
  const CaseReport report =
      run_cases("engram_gate_fwd", cases, op_runner("engram_gate_fwd", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed + std::ssize(report.unsupported) == std::ssize(cases));
  CHECK(report.unsupported.size() == 1);
}

TEST_CASE("the gate gives the same rows with and without saving", "[engram_gate_fwd]") {
  const HostTensors inputs = gate_inputs(5, 4, 2048);
  const HostTensors saving = run_gate(inputs, kEps);
  const HostTensors plain = run_gate(inputs, {{"eps", 1e-20}, {"save_for_backward", false}});
  CHECK(saving.size() == 5);
  CHECK(plain.size() == 1);
  CHECK_THAT(plain.at("out"), EqualsBits(saving.at("out")));
}

TEST_CASE("a token's gate does not depend on its neighbours", "[engram_gate_fwd]") {
  const HostTensors many = gate_inputs(1100, 2, 512);  // several tokens per block
  const HostTensors all = run_gate(many, kEps);
  HostTensors one = gate_inputs(1, 2, 512);
  constexpr int64_t kToken = 1097;
  for (const char* name : {"hidden_states", "k", "v"}) {
    const int64_t size = one.at(name).size();
    for (int64_t i = 0; i < size; ++i) {
      one[name].set_bits(i, many.at(name).bits(kToken * size + i));
    }
  }
  one["weight_fused"] = many.at("weight_fused");
  const HostTensors alone = run_gate(one, kEps);
  for (const auto& [name, tensor] : alone) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      REQUIRE(tensor.bits(i) == all.at(name).bits(kToken * tensor.size() + i));
    }
  }
}

TEST_CASE("NaN in a row poisons that row and its gate alone", "[engram_gate_fwd]") {
  HostTensors inputs = gate_inputs(2, 2, 512);
  const HostTensors clean = run_gate(inputs, kEps);
  inputs["k"].set_value(512 + 100, std::numeric_limits<double>::quiet_NaN());  // token 0, stream 1
  const HostTensors got = run_gate(inputs, kEps);
  for (int64_t i = 0; i < 4 * 512; ++i) {
    const bool poisoned = i / 512 == 1;
    REQUIRE(got.at("out").bits(i) == (poisoned ? 0x7FFF : clean.at("out").bits(i)));
  }
  for (const char* name : {"dot", "gate_score", "rstd_k"}) {
    CHECK(got.at(name).bits(1) == 0x7FFFFFFF);
  }
  CHECK(got.at("rstd_x").bits(1) == clean.at("rstd_x").bits(1));
  inputs["k"].set_value(512 + 100, std::numeric_limits<double>::infinity());
  CHECK(run_gate(inputs, kEps).at("gate_score").bits(1) == 0x7FFFFFFF);  // inf * 0
}

TEST_CASE("a token of an image keeps its bits, and its gate saves 0", "[engram_gate_fwd]") {
  HostTensors inputs = gate_inputs(3, 2, 512);
  for (const int64_t bits :
       {0xFFC1, 0x7F81, 0x8000, 0x7F80, 0x0001}) {  // NaNs that are not 0x7FFF too
    inputs["hidden_states"].set_bits(2 * 512 + bits % 97, static_cast<uint64_t>(bits));
  }
  const HostTensors others = run_gate(inputs, kEps);
  HostTensor& mask = inputs["image_token_mask"] = HostTensor(DType::boolean, {3});
  for (int64_t t = 0; t < 3; ++t) mask.set_bits(t, t == 1 ? 1 : 0);
  const HostTensors got = run_gate(inputs, kEps);
  for (int64_t i = 0; i < 6 * 512; ++i) {
    const bool is_image = i / 1024 == 1;
    const HostTensor& want = is_image ? inputs.at("hidden_states") : others.at("out");
    REQUIRE(got.at("out").bits(i) == want.bits(i));
  }
  for (const char* name : {"dot", "gate_score", "rstd_x", "rstd_k"}) {
    for (int64_t i = 0; i < 6; ++i) {
      CHECK(got.at(name).bits(i) == (i / 2 == 1 ? 0 : others.at(name).bits(i)));
    }
  }
}

TEST_CASE("a score below the clamp keeps its sign, zero is positive", "[engram_gate_fwd]") {
  HostTensors inputs = gate_inputs(1, 1, 512);
  for (int64_t i = 0; i < 512; ++i) {
    inputs["hidden_states"].set_value(i, i == 0 ? 0x1p-60 : 0);
    inputs["k"].set_value(i, i == 0 ? -0x1p-60 : 0);
    inputs["weight_fused"].set_value(i, 1);
  }
  Params params = {{"eps", 1.0}, {"clamp_value", 0.25}};
  const double below = run_gate(inputs, params).at("gate_score").value(0);
  CHECK(std::abs(below - 1 / (1 + std::exp(0.5))) < 1e-6);
  inputs["k"].set_value(0, 0);
  const double above = run_gate(inputs, params).at("gate_score").value(0);
  CHECK(std::abs(above - 1 / (1 + std::exp(-0.5))) < 1e-6);
}

TEST_CASE("engram_gate_fwd explains wrong arguments", "[engram_gate_fwd][errors]") {
  const auto told = [](const std::string& name, HostTensor tensor) {
    HostTensors inputs = gate_inputs(3, 4, 512);
    inputs[name] = std::move(tensor);
    return outputs_error("engram_gate_fwd", inputs, kEps);
  };
  CHECK(outputs_error("engram_gate_fwd", gate_inputs(3, 4, 512), kEps) == "no error");
  CHECK(outputs_error("engram_gate_fwd", gate_inputs(3, 4, 512), {}) ==
        "tessera: engram_gate_fwd: parameter 'eps' is missing\n"
        "  expected  float\n"
        "  got       none");
  CHECK(told("k", HostTensor(DType::bf16, {3, 4, 512}, {4096, 1024, 2})) ==
        "tessera: engram_gate_fwd: argument 'k' has the wrong strides\n"
        "  expected  last stride 1\n"
        "  got       bf16[3, 4, 512], strides [4096, 1024, 2] on cpu");
  CHECK(
      told("v", HostTensor(DType::bf16, {3, 4, 512})) ==
      "tessera: engram_gate_fwd: argument 'v' has the wrong rank\n"
      "  expected  bf16[3, 512]   (T = 3 from hidden_states dim 0; D = 512 from hidden_states dim "
      "2)\n"
      "  got       bf16[3, 4, 512] on cpu");
  CHECK(told("weight_fused", HostTensor(DType::bf16, {4, 512})) ==
        "tessera: engram_gate_fwd: argument 'weight_fused' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       bf16[4, 512] on cpu");
  CHECK(outputs_error("engram_gate_fwd", gate_inputs(3, 4, 600), kEps) ==
        "tessera: engram_gate_fwd: argument 'hidden_states' has the wrong shape\n"
        "  expected  D % 256 = 0\n"
        "  got       D = 600 from hidden_states dim 2");
  const std::string small = outputs_error("engram_gate_fwd", gate_inputs(3, 4, 256), kEps);
  CHECK(small.starts_with("tessera: engram_gate_fwd: argument 'hidden_states' "));
  CHECK(small.find("512") != std::string::npos);
}

TEST_CASE("engram_hash explains wrong arguments", "[engram_hash][errors]") {
  const auto told = [](const std::string& name, HostTensor tensor) {
    HostTensors inputs = hash_inputs();
    inputs[name] = std::move(tensor);
    return outputs_error("engram_hash", inputs, {});
  };
  CHECK(outputs_error("engram_hash", hash_inputs(), {}) == "no error");
  CHECK(told("multipliers", HostTensor(DType::i64, {2, 4})) ==
        "tessera: engram_hash: argument 'multipliers' has the wrong shape\n"
        "  expected  i64[L, 3]   (N = 3 from ngram_token_ids dim 1)\n"
        "  got       i64[2, 4] on cpu");
  CHECK(told("multipliers", HostTensor(DType::i32, {2, 3})) ==
        "tessera: engram_hash: argument 'multipliers' has the wrong dtype\n"
        "  expected  i64\n"
        "  got       i32[2, 3] on cpu");
  CHECK(told("vocab_sizes", HostTensor(DType::i32, {2, 3, 8})) ==
        "tessera: engram_hash: argument 'vocab_sizes' has the wrong shape\n"
        "  expected  i32[2, 2, J]   (L = 2 from multipliers dim 0; N-1 = 2)\n"
        "  got       i32[2, 3, 8] on cpu");
  CHECK(told("offsets", HostTensor(DType::i32, {2, 8})) ==
        "tessera: engram_hash: argument 'offsets' has the wrong shape\n"
        "  expected  i32[2, 16]   (L = 2 from multipliers dim 0; (N-1)*J = 16)\n"
        "  got       i32[2, 8] on cpu");
}
