// topk_gate on the executor: the reference, then what bad calls are told.

#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

namespace {

HostTensor scores(Dims shape) {
  return random_tensor(DType::f32, shape, Values::normal, 1);
}
const kernels::Params kTop6 = {{"num_topk", int64_t{6}}};

}  // namespace

TEST_CASE("topk_gate picks the reference's experts on the executor", "[topk_gate]") {
  const auto cases = topk_gate_cases();
  const CaseReport report = run_cases("topk_gate", cases, op_runner("topk_gate", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("topk_gate explains wrong scores", "[topk_gate][errors]") {
  CHECK(outputs_error("topk_gate", {}, kTop6) ==
        "tessera: topk_gate: argument 'scores' is missing\n"
        "  expected  a tensor named scores\n"
        "  got       no tensors");
  CHECK(outputs_error("topk_gate", {{"scores", scores({72})}}, kTop6) ==
        "tessera: topk_gate: argument 'scores' has the wrong rank\n"
        "  expected  f32[T, E]\n"
        "  got       f32[72] on cpu");
  CHECK(outputs_error("topk_gate", {{"scores", HostTensor(DType::bf16, {4, 72})}}, kTop6) ==
        "tessera: topk_gate: argument 'scores' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       bf16[4, 72] on cpu");
  CHECK(outputs_error("topk_gate", {{"scores", HostTensor(DType::f32, {4, 72}, {80, 1})}}, kTop6) ==
        "tessera: topk_gate: argument 'scores' has the wrong strides\n"
        "  expected  row-major strides [72, 1]\n"
        "  got       f32[4, 72], strides [80, 1] on cpu");
}

TEST_CASE("topk_gate explains a wrong num_topk", "[topk_gate][errors]") {
  const auto told = [](kernels::Params params) {
    return outputs_error("topk_gate", {{"scores", scores({4, 72})}}, params);
  };
  CHECK(told({}) ==
        "tessera: topk_gate: parameter 'num_topk' is missing\n"
        "  expected  int 1..E\n"
        "  got       none");
  CHECK(told({{"num_topk", int64_t{0}}}) ==
        "tessera: topk_gate: parameter 'num_topk' has a wrong value\n"
        "  expected  int 1..E\n"
        "  got       0");
  CHECK(told({{"num_topk", 6.0}}) ==
        "tessera: topk_gate: parameter 'num_topk' has a wrong value\n"
        "  expected  int 1..E\n"
        "  got       6");
  CHECK(told({{"num_topks", int64_t{6}}}) ==
        "tessera: topk_gate: unknown parameter 'num_topks'\n"
        "  expected  num_topk\n"
        "  got       num_topks=6\n"
        "  hint      did you mean 'num_topk'?");
  const std::string too_many = told({{"num_topk", int64_t{73}}});
  CHECK(too_many.starts_with("tessera: topk_gate: parameter 'num_topk' "));
  CHECK(too_many.find("72") != std::string::npos);
  CHECK(too_many.find("\n  got       73") != std::string::npos);
}

TEST_CASE("topk_gate explains a wrong output", "[topk_gate][errors]") {
  const HostTensor input = scores({4, 72});
  CHECK(run_error("topk_gate", {{"scores", input.view()}}, kTop6) ==
        "tessera: topk_gate: argument 'topk_idx' is missing\n"
        "  expected  i64[4, 6]\n"
        "  got       scores");
  const HostTensor narrow(DType::i64, {4, 5});
  const std::string shape =
      run_error("topk_gate", {{"scores", input.view()}, {"topk_idx", narrow.view()}}, kTop6);
  CHECK(
      shape.starts_with("tessera: topk_gate: argument 'topk_idx' has the wrong shape\n"
                        "  expected  i64[4, 6]"));
  CHECK(shape.ends_with("\n  got       i64[4, 5] on cpu"));
  const HostTensor narrow_ids(DType::i32, {4, 6});
  CHECK(
      run_error("topk_gate", {{"scores", input.view()}, {"topk_idx", narrow_ids.view()}}, kTop6) ==
      "tessera: topk_gate: argument 'topk_idx' has the wrong dtype\n"
      "  expected  i64\n"
      "  got       i32[4, 6] on cpu");
}
