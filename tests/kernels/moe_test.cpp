// The ops that move rows between tokens and positions, on the executor: the references, then what
// bad calls are told.

#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

HostTensors expand_inputs() {
  return {{"x", HostTensor(DType::e4m3, {3, 512})},
          {"x_sf", HostTensor(DType::f32, {3, 4})},
          {"token_topk_to_pos", HostTensor(DType::i32, {3, 2})},
          {"pos_to_expert", HostTensor(DType::i32, {8})}};
}
const kernels::Params kBy128 = {{"num_per_channels", int64_t{128}}};

HostTensors reduce_inputs() {
  return {{"x", HostTensor(DType::bf16, {6, 512})},
          {"topk_weights", HostTensor(DType::f32, {3, 2})},
          {"token_topk_to_pos", HostTensor(DType::i32, {3, 2})}};
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

}  // namespace

TEST_CASE("expand_to_fused_with_sf moves the reference's bytes on the executor",
          "[expand_to_fused_with_sf]") {
  check_cases("expand_to_fused_with_sf", expand_to_fused_with_sf_cases());
}

TEST_CASE("expand_to_fused moves the reference's bytes on the executor", "[expand_to_fused]") {
  check_cases("expand_to_fused", expand_to_fused_cases());
}

TEST_CASE("expand_to_fused explains wrong arguments", "[expand_to_fused][errors]") {
  const auto told = [](HostTensors inputs) { return outputs_error("expand_to_fused", inputs, {}); };
  HostTensors inputs = expand_inputs();
  inputs.erase("x_sf");
  CHECK(told(inputs) == "no error");
  CHECK(told(expand_inputs()) ==
        "tessera: expand_to_fused: unknown tensor 'x_sf'\n"
        "  expected  x, token_topk_to_pos, pos_to_expert, out\n"
        "  got       x_sf");
  CHECK(told(with(inputs, "x", HostTensor(DType::i64, {3, 512}))) ==
        "tessera: expand_to_fused: argument 'x' has the wrong dtype\n"
        "  expected  any dtype of 1, 2 or 4 bytes\n"
        "  got       i64[3, 512] on cpu");
  CHECK(told(with(inputs, "token_topk_to_pos", HostTensor(DType::i32, {4, 2}))) ==
        "tessera: expand_to_fused: argument 'token_topk_to_pos' has the wrong shape\n"
        "  expected  i32[3, K]   (T = 3 from x dim 0)\n"
        "  got       i32[4, 2] on cpu");
  CHECK(told(with(inputs, "pos_to_expert", HostTensor(DType::i64, {8}))) ==
        "tessera: expand_to_fused: argument 'pos_to_expert' has the wrong dtype\n"
        "  expected  i32\n"
        "  got       i64[8] on cpu");
  const HostTensor out(DType::e4m3, {9, 512});
  kernels::Tensors views = {{"out", out.view()}};
  for (const auto& [name, tensor] : inputs) views[name] = tensor.view();
  CHECK(run_error("expand_to_fused", views, {}) ==
        "tessera: expand_to_fused: argument 'out' has the wrong shape\n"
        "  expected  e4m3[8, 512]   (P = 8 from pos_to_expert dim 0; H = 512 from x dim 1)\n"
        "  got       e4m3[9, 512] on cpu");
}

TEST_CASE("reduce_fused equals its reference on the executor", "[reduce_fused]") {
  check_cases("reduce_fused", reduce_fused_cases());
}

TEST_CASE("expand_to_fused_with_sf explains wrong arguments", "[expand_to_fused_with_sf][errors]") {
  const auto told = [](const HostTensors& inputs, kernels::Params params) {
    return outputs_error("expand_to_fused_with_sf", inputs, params);
  };
  CHECK(told(expand_inputs(), kBy128) == "no error");
  CHECK(told(expand_inputs(), {{"num_per_channels", int64_t{64}}}) ==
        "tessera: expand_to_fused_with_sf: parameter 'num_per_channels' has a wrong value\n"
        "  expected  {32, 128}\n"
        "  got       64");
  CHECK(told(with(expand_inputs(), "x_sf", HostTensor(DType::f32, {3, 16})), kBy128) ==
        "tessera: expand_to_fused_with_sf: argument 'x_sf' has the wrong shape\n"
        "  expected  C = groups where x_sf is f32\n"
        "  got       C = 16 from x_sf dim 1, groups = 4, x_sf of f32");
  CHECK(
      told(with(expand_inputs(), "x_sf", HostTensor(DType::i32, {3, 1})), kBy128) ==
      "tessera: expand_to_fused_with_sf: parameter 'sf_layout' does not go with the dtype of x_sf\n"
      "  expected  x_sf is i32 iff sf_layout = packed_ue8m0\n"
      "  got       x_sf of i32, sf_layout = row_major");
  CHECK(
      told(expand_inputs(),
           {{"num_per_channels", int64_t{128}}, {"sf_layout", std::string("packed_ue8m0")}}) ==
      "tessera: expand_to_fused_with_sf: parameter 'sf_layout' does not go with the dtype of x_sf\n"
      "  expected  x_sf is i32 iff sf_layout = packed_ue8m0\n"
      "  got       x_sf of f32, sf_layout = packed_ue8m0");
  CHECK(told(with(expand_inputs(), "token_topk_to_pos", HostTensor(DType::i32, {4, 2})), kBy128) ==
        "tessera: expand_to_fused_with_sf: argument 'token_topk_to_pos' has the wrong shape\n"
        "  expected  i32[3, K]   (T = 3 from x dim 0)\n"
        "  got       i32[4, 2] on cpu");
  CHECK(told(with(expand_inputs(), "pos_to_expert", HostTensor(DType::i64, {8})), kBy128) ==
        "tessera: expand_to_fused_with_sf: argument 'pos_to_expert' has the wrong dtype\n"
        "  expected  i32\n"
        "  got       i64[8] on cpu");
  const HostTensors inputs = expand_inputs();
  kernels::Tensors no_outputs;
  for (const auto& [name, tensor] : inputs) no_outputs[name] = tensor.view();
  CHECK(run_error("expand_to_fused_with_sf", no_outputs, kBy128) ==
        "tessera: expand_to_fused_with_sf: argument 'out' is missing\n"
        "  expected  e4m3[8, 512]\n"
        "  got       pos_to_expert, token_topk_to_pos, x, x_sf");
  const HostTensor out(DType::e4m3, {8, 512}), out_sf(DType::f32, {8, 4}, {1, 8});
  kernels::Tensors views = {{"out", out.view()}, {"out_sf", out_sf.view()}};
  for (const auto& [name, tensor] : inputs) views[name] = tensor.view();
  CHECK(run_error("expand_to_fused_with_sf", views, kBy128) ==
        "tessera: expand_to_fused_with_sf: argument 'out_sf' has the wrong strides\n"
        "  expected  row-major strides [4, 1]\n"
        "  got       f32[8, 4], strides [1, 8] on cpu");
}

TEST_CASE("reduce_fused explains wrong arguments", "[reduce_fused][errors]") {
  const auto told = [](const HostTensors& inputs, kernels::Params params) {
    return outputs_error("reduce_fused", inputs, params);
  };
  CHECK(told(reduce_inputs(), {}) == "no error");
  CHECK(told(with(reduce_inputs(), "x", HostTensor(DType::bf16, {6, 500})), {}) ==
        "tessera: reduce_fused: argument 'x' has the wrong shape\n"
        "  expected  H % 256 = 0\n"
        "  got       H = 500 from x dim 1");
  CHECK(told(with(reduce_inputs(), "x_sf", HostTensor(DType::f32, {5})), {}) ==
        "tessera: reduce_fused: argument 'x_sf' has the wrong shape\n"
        "  expected  f32[6]   (P = 6 from x dim 0)\n"
        "  got       f32[5] on cpu");
  CHECK(told(with(reduce_inputs(), "sf", HostTensor(DType::f32, {1})), {}) ==
        "tessera: reduce_fused: 'sf' scales e4m3 outputs only\n"
        "  expected  format = e4m3 where sf\n"
        "  got       format = none, sf of f32");
  CHECK(told(reduce_inputs(), {{"format", std::string("e5m2")}}) ==
        "tessera: reduce_fused: parameter 'format' has a wrong value\n"
        "  expected  {none, e4m3}\n"
        "  got       e5m2");
  CHECK(told(with(reduce_inputs(), "topk_weights", HostTensor(DType::f32, {3, 3})), {}) ==
        "tessera: reduce_fused: argument 'token_topk_to_pos' has the wrong shape\n"
        "  expected  i32[3, 3]   (T = 3 from topk_weights dim 0; K = 3 from topk_weights dim 1)\n"
        "  got       i32[3, 2] on cpu");
}
