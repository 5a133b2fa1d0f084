// transpose and batched_transpose on the executor: the reference, then what bad calls are told.

#include <iostream>

#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

namespace {

HostTensor bf16_tensor(Dims shape) {
  return random_tensor(DType::bf16, shape, Values::bits, 1);
}

}  // namespace

TEST_CASE("transpose moves every element on the executor", "[transpose][slow]") {
  const std::string op = GENERATE("transpose", "batched_transpose");
  const auto cases = op == "transpose" ? transpose_cases() : batched_transpose_cases();
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  CHECK(report.passed > 0);
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  for (const std::string& line : report.unsupported) std::cout << "unsupported: " << line << "\n";
}

TEST_CASE("transpose explains a wrong input", "[transpose][errors]") {
  CHECK(outputs_error("transpose", {}, {}) ==
        "tessera: transpose: argument 'x' is missing\n"
        "  expected  a tensor named x\n"
        "  got       no tensors");
  CHECK(outputs_error("transpose", {{"x", bf16_tensor({2, 64, 64})}}, {}) ==
        "tessera: transpose: argument 'x' has the wrong rank\n"
        "  expected  bf16[R, C]\n"
        "  got       bf16[2, 64, 64] on cpu");
  CHECK(outputs_error("transpose", {{"x", HostTensor(DType::i64, {64, 64})}}, {}) ==
        "tessera: transpose: argument 'x' has the wrong dtype\n"
        "  expected  any dtype of 1, 2 or 4 bytes\n"
        "  got       i64[64, 64] on cpu");
  CHECK(outputs_error("transpose", {{"x", HostTensor(DType::bf16, {64, 64}, {128, 2})}}, {}) ==
        "tessera: transpose: argument 'x' has the wrong strides\n"
        "  expected  last stride 1\n"
        "  got       bf16[64, 64], strides [128, 2] on cpu");
  CHECK(outputs_error("transpose", {{"x", HostTensor(DType::bf16, {64, 64}, {32, 1})}}, {}) ==
        "tessera: transpose: argument 'x' has the wrong strides\n"
        "  expected  strides that do not overlap\n"
        "  got       bf16[64, 64], strides [32, 1] on cpu");
  CHECK(outputs_error("transpose", {{"y", bf16_tensor({64, 64})}}, {}) ==
        "tessera: transpose: unknown tensor 'y'\n"
        "  expected  x, out\n"
        "  got       y");
  CHECK(outputs_error("transpose", {{"x", bf16_tensor({64, 64})}}, {{"block", int64_t{64}}}) ==
        "tessera: transpose: unknown parameter 'block'\n"
        "  expected  no parameters\n"
        "  got       block=64");
}

TEST_CASE("transpose explains a wrong output", "[transpose][errors]") {
  const HostTensor x = bf16_tensor({64, 128});
  CHECK(run_error("transpose", {{"x", x.view()}}, {}) ==
        "tessera: transpose: argument 'out' is missing\n"
        "  expected  bf16[128, 64]\n"
        "  got       x");
  const HostTensor narrow(DType::bf16, {128, 32});
  CHECK(run_error("transpose", {{"x", x.view()}, {"out", narrow.view()}}, {}) ==
        "tessera: transpose: argument 'out' has the wrong shape\n"
        "  expected  bf16[128, 64]   (C = 128 from x dim 1; R = 64 from x dim 0)\n"
        "  got       bf16[128, 32] on cpu");
  const HostTensor other_dtype(DType::f16, {128, 64});
  CHECK(run_error("transpose", {{"x", x.view()}, {"out", other_dtype.view()}}, {}) ==
        "tessera: transpose: argument 'out' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f16[128, 64] on cpu");
  const HostTensor pitched(DType::bf16, {128, 64}, {80, 1});
  CHECK(run_error("transpose", {{"x", x.view()}, {"out", pitched.view()}}, {}) ==
        "tessera: transpose: argument 'out' has the wrong strides\n"
        "  expected  row-major strides [64, 1]\n"
        "  got       bf16[128, 64], strides [80, 1] on cpu");
}

TEST_CASE("transpose refuses to work in place", "[transpose][errors]") {
  const HostTensor x = bf16_tensor({64, 64});
  const std::string text = run_error("transpose", {{"x", x.view()}, {"out", x.view()}}, {});
  CHECK(
      text.starts_with("tessera: transpose: argument 'out' shares memory with 'x'\n"
                       "  expected  an output with memory of its own\n"
                       "  got       out of 8192 bytes at "));
}

TEST_CASE("batched_transpose explains a wrong rank", "[transpose][errors]") {
  CHECK(outputs_error("batched_transpose", {{"x", bf16_tensor({64, 64})}}, {}) ==
        "tessera: batched_transpose: argument 'x' has the wrong rank\n"
        "  expected  bf16[B, R, C]\n"
        "  got       bf16[64, 64] on cpu");
}
