// swiglu_fwd and swiglu_bwd on the executor: the references, the mistakes that their cases catch, what bad
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

std::vector<OpCase> small(std::vector<OpCase> cases) {
  std::erase_if(cases, [](const OpCase& test) { return test.inputs.at("x").size() > 30000; });
  return cases;
}

HostTensors forward_inputs(int64_t columns = 128) {
  return {{"x", HostTensor(DType::bf16, {5, columns})}};
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

/// Mistakes about what both ops are given.
void check_shared_mutants(const std::string& op, const std::vector<OpCase>& cases) {
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught([](HostTensors& in, Params&) { in.erase("psum"); }));
  CHECK(caught([](HostTensors&, Params& params) { params.erase("swiglu_clamp_value"); }));
  CHECK(caught([](HostTensors&, Params& params) { params.erase("routed_scaling_factor"); }));
  CHECK(caught([](HostTensors&, Params& params) {  // experts follow each other without padding
    if (params.contains("alignment")) params["alignment"] = int64_t{1};
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // the last row of each expert
    if (!in.contains("psum")) return;
    HostTensor& psum = in["psum"];
    for (int64_t e = 0; e < psum.size(); ++e) psum.set_value(e, psum.value(e) - 1);
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // gate and up exchanged
    HostTensor& x = in["x"];
    const int64_t columns = x.shape()[1];
    const HostTensor before = x;
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t column = (i % columns + columns / 2) % columns;
      x.set_bits(i, before.bits(i / columns * columns + column));
    }
  }));
}

}  // namespace

TEST_CASE("swiglu_fwd equals its reference on the executor", "[swiglu_fwd]") {
  check_cases("swiglu_fwd", swiglu_fwd_cases());
}

TEST_CASE("swiglu_bwd equals its reference on the executor", "[swiglu_bwd]") {
  check_cases("swiglu_bwd", swiglu_bwd_cases());
}

TEST_CASE("the swiglu_fwd tests catch every mutant", "[swiglu_fwd][mutants]") {
  const std::string op = "swiglu_fwd";
  const auto cases = small(swiglu_fwd_cases());
  check_shared_mutants(op, cases);
  for (int64_t which = 0; which < 4; ++which) {
    CHECK(is_caught(op, cases, spoiled(op, [=](const HostTensors& in, HostTensors& out) {
                      if (!in.contains("clamped_count")) return;
                      out["clamped_count"].set_bits(which, in.at("clamped_count").bits(which));
                    })));
  }
  CHECK(
      is_caught(op, cases, misled(op, [](HostTensors& in, Params&) { in.erase("topk_weights"); })));
}

TEST_CASE("the swiglu_bwd tests catch every mutant", "[swiglu_bwd][mutants]") {
  const std::string op = "swiglu_bwd";
  const auto cases = small(swiglu_bwd_cases());
  check_shared_mutants(op, cases);
  CHECK(is_caught(op, cases, misled(op, [](HostTensors& in, Params&) {  // weights of the rows
                    if (!in.contains("topk_weights")) return;
                    for (int64_t i = 0; i < in["topk_weights"].size(); ++i) {
                      in["topk_weights"].set_value(i, 1);
                    }
                  })));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors&, HostTensors& out) {
                    if (out.contains("grad_weight")) out["grad_weight"].fill_bytes(std::byte{0});
                  })));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors&, HostTensors& out) {
                    if (out.contains("out")) out["out"].fill_bytes(std::byte{0});
                  })));
}

TEST_CASE("swiglu_fwd and swiglu_bwd explain wrong arguments", "[swiglu_fwd][swiglu_bwd][errors]") {
  const Params bf16 = {{"out_dtype", std::string("bf16")}};
  const auto told = [&](const HostTensors& inputs, Params params = {}) {
    params.insert(bf16.begin(), bf16.end());
    return outputs_error("swiglu_fwd", inputs, params);
  };
  CHECK(told(forward_inputs()) == "no error");
  CHECK(told(forward_inputs(24)) ==
        "tessera: swiglu_fwd: argument 'x': rows of so many columns are not supported\n"
        "  expected  H % 8 = 0\n"
        "  got       H = 12 = 2H = 24 of x dim 1");
  CHECK(told(forward_inputs(), {{"routed_scaling_factor", 2.0}}) ==
        "tessera: swiglu_fwd: parameter 'routed_scaling_factor' needs 'topk_weights'\n"
        "  expected  topk_weights\n"
        "  got       nothing");
  CHECK(told(with(forward_inputs(), "clamped_count", HostTensor(DType::i64, {4}))) ==
        "tessera: swiglu_fwd: 'clamped_count' needs 'swiglu_clamp_value'\n"
        "  expected  swiglu_clamp_value != none where clamped_count\n"
        "  got       swiglu_clamp_value = none, clamped_count of i64");
  CHECK(told(forward_inputs(), {{"swiglu_clamp_value", 0.0}}) ==
        "tessera: swiglu_fwd: parameter 'swiglu_clamp_value' is out of range\n"
        "  expected  swiglu_clamp_value > 0 where swiglu_clamp_value != none\n"
        "  got       swiglu_clamp_value = 0");
  CHECK(told(forward_inputs(), {{"alignment", int64_t{0}}}) ==
        "tessera: swiglu_fwd: parameter 'alignment' is out of range\n"
        "  expected  1 <= alignment <= 2147483647\n"
        "  got       alignment = 0");
  CHECK(told(with(forward_inputs(), "topk_weights", HostTensor(DType::f32, {4}))) ==
        "tessera: swiglu_fwd: argument 'topk_weights' has the wrong shape\n"
        "  expected  f32[5]   (P = 5 from x dim 0)\n"
        "  got       f32[4] on cpu");
  CHECK(outputs_error("swiglu_bwd",
                      with(forward_inputs(), "grad_out", HostTensor(DType::bf16, {5, 128})),
                      bf16) ==
        "tessera: swiglu_bwd: argument 'grad_out' has the wrong shape\n"
        "  expected  bf16|f32[5, 64]   (P = 5 from x dim 0; H = 64 = 2H = 128 of x dim 1)\n"
        "  got       bf16[5, 128] on cpu");
}
