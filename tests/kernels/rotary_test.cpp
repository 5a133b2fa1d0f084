// Rotary position embedding on the executor: the reference, the mistakes that the cases catch, what bad
// calls are told.

#include <algorithm>
#include <cmath>

#include "tests/reference/numeric.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

HostTensors rotary_inputs() {
  return {{"cos_sin", HostTensor(DType::f32, {9, 64})},
          {"query", HostTensor(DType::bf16, {5, 4, 64})}};
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

/// Positions for every token, by its number in the call and in its sequence.
void set_positions(HostTensors& in, int64_t (*position)(int64_t token, int64_t in_sequence)) {
  const Dims& shape = in.at("query").shape();
  Dims tokens = {shape[0]};
  if (shape.rank == 4) tokens.push_back(shape[1]);
  HostTensor positions(DType::i64, tokens);
  const int64_t length = tokens[tokens.rank - 1];
  for (int64_t t = 0; t < positions.size(); ++t) {
    positions.set_value(t, static_cast<double>(position(t, t % length)));
  }
  in["positions"] = std::move(positions);
}

}  // namespace

TEST_CASE("apply_rotary equals its reference on the executor", "[apply_rotary]") {
  const kernels::UncheckedValues as_on_a_gpu;
  const auto cases = apply_rotary_cases();
  const CaseReport report =
      run_cases("apply_rotary", cases, op_runner("apply_rotary", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("the apply_rotary tests catch every mutant", "[apply_rotary][mutants]") {
  const std::string op = "apply_rotary";
  std::vector<OpCase> cases = apply_rotary_cases();
  // The mutants are of the references: the largest cases add nothing.
  std::erase_if(cases, [](const OpCase& test) { return test.inputs.at("query").size() > 100000; });
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  for (const char* flag : {"interleaved", "conjugate"}) {
    for (const bool value : {false, true}) {
      CHECK(caught([=](HostTensors&, Params& params) { params[flag] = value; }));
    }
  }
  for (const char* layout : {"halves", "pairs"}) {
    CHECK(caught(
        [=](HostTensors&, Params& params) { params["cos_sin_layout"] = std::string(layout); }));
  }
  CHECK(caught([](HostTensors&, Params& params) { params["position_offset"] = int64_t{0}; }));
  CHECK(caught([](HostTensors& in, Params&) { in.erase("positions"); }));
  CHECK(caught([](HostTensors& in, Params&) {  // tokens count on from one sequence to the next
    if (!in.contains("positions")) set_positions(in, [](int64_t t, int64_t) { return t; });
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // positions of 32 bits
    if (!in.contains("positions")) return;
    HostTensor& positions = in["positions"];
    for (int64_t i = 0; i < positions.size(); ++i) {
      positions.set_value(i, static_cast<int32_t>(static_cast<uint32_t>(positions.bits(i))));
    }
  }));
  CHECK(caught([](HostTensors& in, Params& params) {  // positions are clamped
    if (!in.contains("positions")) return;
    HostTensor& positions = in["positions"];
    const auto offset = params.contains("position_offset")
                            ? static_cast<double>(std::get<int64_t>(params["position_offset"]))
                            : 0.0;
    const auto last = static_cast<double>(in["cos_sin"].shape()[0] - 1);
    for (int64_t i = 0; i < positions.size(); ++i) {
      positions.set_value(i, std::clamp(positions.value(i), -offset, last - offset));
    }
  }));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {
                    if (in.contains("key")) out["key"] = in.at("key");
                  })));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors&, HostTensors& out) {  // one ulp
                    HostTensor& query = out["query"];
                    if (query.size() > 0 && query.dtype() == DType::f32) {
                      query.set_bits(0, query.bits(0) ^ 1);
                    }
                  })));
}

TEST_CASE("apply_rotary rounds a product and its sum once", "[apply_rotary]") {
  // (1 + 2^-12)^2 - 1 is 2^-11 + 2^-24, whose last part a product rounded by itself loses.
  const float near_one = 1 + 0x1p-12F;
  HostTensor table(DType::f32, {1, 64}), query(DType::f32, {1, 1, 64});
  for (int64_t i = 0; i < 64; ++i) {
    table.set_value(i, i < 32 ? static_cast<double>(near_one) : 1);
    query.set_value(i, i < 32 ? static_cast<double>(near_one) : 1);
  }
  const HostTensors out =
      op_runner("apply_rotary", Device::cpu())({{"cos_sin", table}, {"query", query}}, {});
  for (int64_t i = 0; i < 32; ++i) CHECK(at(out.at("query"), i) == 0x1p-11F + 0x1p-24F);
}

TEST_CASE("apply_rotary explains wrong arguments", "[apply_rotary][errors]") {
  const auto told = [](const HostTensors& inputs, const Params& params = {}) {
    return outputs_error("apply_rotary", inputs, params);
  };
  CHECK(told(rotary_inputs()) == "no error");
  CHECK(told(with(rotary_inputs(), "cos_sin", HostTensor(DType::f32, {9, 128}))) ==
        "tessera: apply_rotary: argument 'query' has the wrong shape\n"
        "  expected  bf16|f32[T, h, 128]   (R = 128 from cos_sin dim 1)\n"
        "  got       bf16[5, 4, 64] on cpu");
  CHECK(told({{"cos_sin", HostTensor(DType::f32, {9, 96})},
              {"query", HostTensor(DType::bf16, {5, 4, 96})}}) ==
        "tessera: apply_rotary: argument 'cos_sin': so many channels are not supported\n"
        "  expected  R in {64, 128}\n"
        "  got       R = 96 from cos_sin dim 1");
  CHECK(told(with(rotary_inputs(), "cos_sin", HostTensor(DType::f32, {0, 64}))) ==
        "tessera: apply_rotary: argument 'cos_sin' has no rows\n"
        "  expected  angles >= 1\n"
        "  got       angles = 0 from cos_sin dim 0");
  CHECK(told(with(rotary_inputs(), "query", HostTensor(DType::bf16, {5, 0, 64}))) ==
        "tessera: apply_rotary: argument 'query' has no heads\n"
        "  expected  h >= 1\n"
        "  got       h = 0 from query dim 1");
  CHECK(told(with(rotary_inputs(), "key", HostTensor(DType::bf16, {5, 0, 64}))) ==
        "tessera: apply_rotary: argument 'key' has no heads\n"
        "  expected  g >= 1 where key\n"
        "  got       g = 0 from key dim 1, key of bf16");
  CHECK(told(with(rotary_inputs(), "key", HostTensor(DType::f32, {5, 1, 64}))) ==
        "tessera: apply_rotary: argument 'key' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f32[5, 1, 64] on cpu");
  CHECK(told(with(rotary_inputs(), "positions", HostTensor(DType::i32, {4}))) ==
        "tessera: apply_rotary: argument 'query' has the wrong shape\n"
        "  expected  bf16|f32[4, h, 64]   (T = 4 from positions dim 0; R = 64 from cos_sin dim 1)\n"
        "  got       bf16[5, 4, 64] on cpu");
  CHECK(told(with(rotary_inputs(), "query", HostTensor(DType::bf16, {2, 3, 5, 4, 64}))) ==
        "tessera: apply_rotary: argument 'query': so many token dimensions are not supported\n"
        "  expected  [T, h, R] or [batch, T, h, R]\n"
        "  got       bf16[2, 3, 5, 4, 64]");
  CHECK(told(rotary_inputs(), {{"cos_sin_layout", std::string("rows")}}) ==
        "tessera: apply_rotary: parameter 'cos_sin_layout' has a wrong value\n"
        "  expected  {halves, pairs}\n"
        "  got       rows");
}
