// The ops of the library on the GPU: the cases of the executor tests, then sizes of models and
// offsets beyond 2^31.

#include "kernels/op.h"
#include "tests/runtime/long_tests.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/ops/bench_inputs.h"
#include "tests/support/ops/chain.h"
#include "tests/support/ops/compressor_variants.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cuda(0)));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed > 0);
}

OpCase one_tensor(const std::string& label, const std::string& name, HostTensor tensor,
                  kernels::Params params = {}) {
  OpCase test;
  test.label = label;
  test.inputs[name] = std::move(tensor);
  test.params = std::move(params);
  return test;
}

}  // namespace

TEST_CASE("ops equal their references on the GPU", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  for (const kernels::OpInfo& op : kernels::ops()) {
    DYNAMIC_SECTION(op.name) {
      check_cases(op.name, cases_of(op.name));
    }
  }
}

// TESSERA_LONG_TESTS=1 takes all of them, some with most of a minute in the reference; else the
// smaller ones.
TEST_CASE("what is measured equals its reference", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  constexpr int64_t kSmall = int64_t{1} << 25;  // bytes of traffic
  for (const kernels::OpInfo& op : kernels::ops()) {
    // Products take hours in the reference: the next tests and the cases have smaller ones.
    if (op.family == "gemm" || op.name.find("mqa_") != std::string::npos) continue;
    DYNAMIC_SECTION(op.name) {
      for (const kernels::BenchCase& measured : op.bench) {
        DYNAMIC_SECTION(measured.label) {
          if (measured.bytes > kSmall && !long_tests()) {
            WARN(op.name << " " << measured.label << ": left out without TESSERA_LONG_TESTS=1");
            continue;
          }
          const OpCase own = cases_of(op.name).front();
          OpCase test = case_of(measured);
          test.tolerance = own.tolerance;
          test.tolerances = own.tolerances;
          test.quantised = own.quantised;
          if (op.name == "compress_store" || op.name == "compress_decode_store") {
            Random random(1);
            make_exponentials_exact(test.inputs, random);  // so that the cache has the same bits
          }
          check_cases(op.name, {test});
        }
      }
    }
  }
}

TEST_CASE("ops equal their references at the sizes of models", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  SECTION("transpose") {
    const DType dtype = GENERATE(DType::e4m3, DType::bf16, DType::f32);
    check_cases("transpose",
                {one_tensor("8064 x 7168, pitch 14336", "x",
                            random_tensor(dtype, {8064, 7168}, {14336, 1}, Values::bits, 1))});
  }
  SECTION("batched_transpose") {
    const DType dtype = GENERATE(DType::e4m3, DType::bf16, DType::f32);
    check_cases(
        "batched_transpose",
        {one_tensor("8 x 4032 x 576", "x", random_tensor(dtype, {8, 4032, 576}, Values::bits, 2))});
  }
  SECTION("topk_gate") {
    const kernels::Params params = {{"num_topk", int64_t{8}}};
    check_cases("topk_gate",
                {one_tensor("8001 x 256", "scores",
                            random_tensor(DType::f32, {8001, 256}, Values::normal, 3), params)});
  }
  SECTION("topk_select") {
    const std::string order = GENERATE("index", "value");
    const kernels::Params params = {
        {"topk", int64_t{2048}}, {"order", order}, {"save_values", true}};
    HostTensor scores = random_tensor(DType::f32, {3, int64_t{1} << 20}, Values::normal, 9);
    for (int64_t i = 0; i < scores.size(); i += 2) scores.set_value(i, 2.5);  // ties at the limit
    check_cases("topk_select", {one_tensor("3 x 2^20", "scores", std::move(scores), params)});
  }
  SECTION("per_token_cast") {
    const bool round_sf = GENERATE(false, true);
    const kernels::Params params = {{"format", std::string("e4m3")},
                                    {"num_per_channels", int64_t{128}},
                                    {"round_sf", round_sf}};
    check_cases("per_token_cast",
                {one_tensor("4001 x 7168", "x",
                            random_tensor(DType::bf16, {4001, 7168}, Values::normal, 4), params)});
  }
}

TEST_CASE("products equal their references on the GPU where blocks compute several tiles",
          "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  SECTION("gemm_bf16: more tiles than multiprocessors") {
    OpCase test = one_tensor("1500 x 3400 x 40", "a",
                             random_tensor(DType::bf16, {1500, 40}, Values::normal, 1));
    test.inputs["b"] = random_tensor(DType::bf16, {3400, 40}, Values::normal, 2);
    // 8 bits of bf16; S, the sum of abs(a b), is below k.
    test.tolerance = Tolerance{0x1p-8, 40 * 0x1p-20};
    check_cases("gemm_bf16", {test});
  }
  SECTION("gemm_bf16: a ring that goes round many times") {
    OpCase test = one_tensor("136 x 300 x 4104", "a",
                             random_tensor(DType::bf16, {136, 4104}, Values::normal, 1),
                             {{"out_dtype", std::string("f32")}});
    test.inputs["b"] = random_tensor(DType::bf16, {300, 4104}, Values::normal, 2);
    test.tolerance = Tolerance{0, 4104 * 0x1p-20};
    check_cases("gemm_bf16", {test});
  }
  const auto blocks = [](int64_t m, int64_t n, int64_t k) {
    const int64_t parts = (k + 127) / 128, column_parts = (n + 127) / 128;
    OpCase test = one_tensor(fmt::format("{} x {} x {}", m, n, k), "a",
                             random_tensor(DType::e4m3, {m, k}, Values::normal, 1));
    test.inputs["a_sf"] = random_tensor(DType::f32, {m, parts}, Values::uniform, 2);
    test.inputs["b"] = random_tensor(DType::e4m3, {n, k}, Values::normal, 3);
    test.inputs["b_sf"] = random_tensor(DType::f32, {column_parts, parts}, Values::uniform, 4);
    test.tolerance = Tolerance{.calc_diff = 3e-5};
    return test;
  };
  SECTION("gemm_fp8_block") {
    check_cases("gemm_fp8_block", {blocks(200, 9000, 144)});
  }
  SECTION("gemm_fp8_block: tiles of 192 rows") {
    check_cases("gemm_fp8_block", {blocks(1500, 1500, 144)});
  }
}

TEST_CASE("pre_big_fuse equals the chain bit for bit on the GPU", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  std::vector<OpCase> cases = pre_big_fuse_cases();
  OpCase model = cases.front();
  model.label = "1200 x 4 x 7168";  // more than L2 holds, so that norm_fn_fwd streams it
  model.inputs["residual"] = random_tensor(DType::bf16, {1200, 4, 7168}, Values::normal, 7);
  model.inputs["fn"] = random_tensor(DType::f32, {24, 4 * 7168}, Values::uniform, 8);
  cases.push_back(model);
  const CaseReport report = compare_with_chain("pre_big_fuse", cases, Device::cuda(0));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed > 0);
}

TEST_CASE("offsets beyond 2^31 elements", "[gpu]") {
  if (const std::string reason = why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  // Few rows, far apart: the storage is large, the logical tensor is not.
  SECTION("transpose") {
    const int64_t pitch = 40'000'000;  // 64 rows end beyond 2^31
    check_cases("transpose",
                {one_tensor("64 x 256, pitch 4e7", "x",
                            random_tensor(DType::u8, {64, 256}, {pitch, 1}, Values::bits, 5))});
  }
  SECTION("per_token_cast") {
    const int64_t pitch = 800'000'000;
    const kernels::Params params = {{"format", std::string("e4m3")},
                                    {"num_per_channels", int64_t{128}}};
    check_cases(
        "per_token_cast",
        {one_tensor("4 x 512, pitch 8e8", "x",
                    random_tensor(DType::bf16, {4, 512}, {pitch, 1}, Values::normal, 6), params)});
  }
}
