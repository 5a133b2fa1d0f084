// Matrix products on the executor: the references, the bits of the tensor cores of sm_90, the mistakes
// that the cases catch, what bad calls are told.

#include "tests/reference/gemm.h"

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "kernels/gemm/parts/bf16_kernel.h"
#include "kernels/jit/target.h"
#include "tests/reference/tensor_core.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/places.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

HostTensors bf16_inputs() {
  return {{"a", HostTensor(DType::bf16, {5, 64})}, {"b", HostTensor(DType::bf16, {9, 64})}};
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

/// Recorded sums of bf16 by both instructions, of e4m3 by wgmma.
std::string check_recorded(const std::string& line) {
  std::istringstream words(line);
  std::string dtype, instruction, word;
  words >> dtype >> instruction;
  const bool is_short = dtype == "e4m3" && instruction == "wgmma";
  if (!is_short && (dtype != "bf16" || instruction == "mma-half")) return "another";
  std::map<std::string, std::vector<uint32_t>> numbers;
  std::string list;
  while (words >> word) {
    if (word == "class" || word == "c" || word == "d" || word == "a" || word == "b") {
      list = numbers[word].empty() ? word : list;
      if (list == word) continue;
    }
    numbers[list].push_back(static_cast<uint32_t>(std::stoul(word, nullptr, 16)));
  }
  const reference::TensorCore core =
      is_short ? reference::TensorCore{13, 13} : reference::TensorCore{};
  const uint32_t got = reference::tensor_core_sum(core, is_short ? DType::e4m3 : DType::bf16,
                                                  numbers["c"].at(0), numbers["a"], numbers["b"]);
  return got == numbers["d"].at(0) ? "equal" : "different: " + line;
}

}  // namespace

TEST_CASE("the reference of tensor cores gives the recorded sums of an H200", "[gemm]") {
  std::ifstream file(in_source("tests/golden/mma_sums.txt"));
  std::map<std::string, int> counts;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("#")) ++counts[check_recorded(line)];
  }
  CHECK(counts["equal"] == 108);
  for (const auto& [what, count] : counts) {
    if (what.starts_with("different")) FAIL_CHECK(what);
  }
}

TEST_CASE("gemm_bf16 equals its reference on the executor", "[gemm][gemm_bf16]") {
  check_products("gemm_bf16", gemm_bf16_cases());
}

TEST_CASE("a call of gemm_bf16 on the CPU has the bits of the target's tensor cores",
          "[gemm][gemm_bf16]") {
  const int64_t m = 200, n = 264, depth = 200;
  const HostTensor a = random_tensor(DType::bf16, {m, depth}, Values::normal, 4);
  const HostTensor b = random_tensor(DType::bf16, {n, depth}, Values::normal, 5);
  const Params params = {{"out_dtype", std::string("f32")}};
  const auto out = [&] {
    return op_runner("gemm_bf16", Device::cpu())({{"a", a}, {"b", b}}, params).at("out");
  };
  const HostTensor want = reference::gemm_bf16(a, b, nullptr, DType::f32);
  CHECK(out().raw() == want.raw());
  const kernels::jit::TargetScope ampere(parse_target("sm_80").value());
  CHECK(out().raw() != want.raw());  // rounded once, as no sums of sm_80 are known
}

TEST_CASE("gemm_bf16 has the bits of the tensor cores, whatever the tile and whose turn it is",
          "[gemm][gemm_bf16]") {
  const int64_t m = 136, n = 272, depth = 200;
  const HostTensor a = random_tensor(DType::bf16, {m, depth}, Values::normal, 1);
  const HostTensor b = random_tensor(DType::bf16, {n, depth}, Values::normal, 2);
  const HostTensor bias = random_tensor(DType::f32, {n}, Values::normal, 3);
  const HostTensor want_bf16 = reference::gemm_bf16(a, b, &bias, DType::bf16);
  const HostTensor want_f32 = reference::gemm_bf16(a, b, &bias, DType::f32);
  const auto check = [&](const kernels::gemm::Tile& tile, const char* target, uint32_t schedule,
                         int64_t blocks = 132) {
    kernels::gemm::Bf16Spec spec{.a = {0, 8},
                                 .b = {0, 8},
                                 .m_multiple = 1,
                                 .n_multiple = 8,
                                 .k_multiple = 8,
                                 .out_vector = 8,
                                 .has_depth = 1,
                                 .has_bias = 1,
                                 .is_f32 = 0,
                                 .by_engine = 0,
                                 .tile = tile};
    const auto check_spec = [&] {
      CAPTURE(target, tile.rows, tile.columns, tile.by_roles, tile.is_swapped, tile.cluster, blocks,
              schedule, spec.is_f32, spec.by_engine);
      const bool is_f32 = spec.is_f32 != 0;
      const DType dtype = is_f32 ? DType::f32 : DType::bf16;
      HostTensor out(dtype, {m, n});
      run_with_target_sums(
          kernels::gemm::build_bf16(spec), target,
          {{{"a", a.view()}, {"b", b.view()}, {"bias", bias.view()}, {"out", out.view()}},
           {{"m", m},
            {"n", n},
            {"depth", depth},
            {"a_stride", depth},
            {"b_stride", depth},
            {"out_stride", n},
            {"device_blocks", blocks}}},
          schedule);
      CHECK(out.raw() == (is_f32 ? want_f32 : want_bf16).raw());
    };
    check_spec();
    spec.by_engine = tile.by_roles;
    if (tile.by_roles != 0) check_spec();
    spec.by_engine = 0;
    spec.is_f32 = 1;
    spec.out_vector = 4;
    check_spec();
  };
  check({128, 128, 32, 3, 0}, "sm_90", 0);
  check({128, 128, 32, 3, 0}, "sm_90a", 0);
  for (const kernels::gemm::Tile& tile : kernels::gemm::kBf16Tiles) check(tile, "sm_90a", 0);
  for (const kernels::gemm::Tile& tile : kernels::gemm::kBf16Swapped) check(tile, "sm_90a", 0);
  for (const int32_t cluster : {2, 4}) {
    check({64, 64, 64, 3, 1, cluster}, "sm_90a", 0, 4);
    check({64, 128, 64, 2, 1, cluster}, "sm_90a", 5);
  }
  // one block computes four tiles
  for (const uint32_t schedule : {0U, 1U, 2U, 3U})
    check({128, 128, 64, 2, 1}, "sm_90a", schedule, 1);
}

TEST_CASE("gemm_bf16 is as near to f64 as promised", "[gemm][gemm_bf16]") {
  const int64_t m = 24, n = 40, depth = 300;
  const HostTensor a = random_tensor(DType::bf16, {m, depth}, Values::normal, 11);
  const HostTensor b = random_tensor(DType::bf16, {n, depth}, Values::normal, 12);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Params params = {{"out_dtype", std::string(name(dtype))}};
    const HostTensor got =
        op_runner("gemm_bf16", Device::cpu())({{"a", a}, {"b", b}}, params).at("out");
    const HostTensor modelled = reference::gemm_bf16(a, b, nullptr, dtype);
    double worst = 0;  // of the allowance
    for (int64_t i = 0; i < m * n; ++i) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < depth; ++k) {
        const double product = a.value(i / n * depth + k) * b.value(i % n * depth + k);
        sum += product;
        size += std::fabs(product);
      }
      const double allowed = size * 0x1p-12 + (dtype == DType::bf16 ? std::fabs(sum) * 0x1p-8 : 0);
      worst = std::max(worst, std::fabs(got.value(i) - sum) / allowed);
      worst = std::max(worst, std::fabs(modelled.value(i) - sum) / allowed);
    }
    CAPTURE(dtype, worst);
    CHECK(worst <= 1);
    CHECK(worst > 0);
  }
}

TEST_CASE("the gemm_bf16 tests catch every mutant", "[gemm][gemm_bf16][mutants]") {
  const std::string op = "gemm_bf16";
  const auto cases = gemm_bf16_cases();
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  const auto zeroed = [&](const char* operand, int64_t from_end) {  // a column of k is left out
    return caught([=](HostTensors& in, Params&) {
      HostTensor& x = in[operand];
      const int64_t depth = x.shape()[1];
      for (int64_t i = 0; i < x.size(); ++i) {
        if (i % depth == depth - from_end) x.set_value(i, 0);
      }
    });
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(zeroed("a", 1));
  CHECK(zeroed("b", 1));
  CHECK(zeroed("a", 8));
  CHECK(caught([](HostTensors& in, Params&) { in.erase("bias"); }));
  CHECK(caught([](HostTensors& in, Params&) {  // the bias of the first column for all
    if (!in.contains("bias")) return;
    HostTensor& bias = in["bias"];
    for (int64_t i = 1; i < bias.size(); ++i) bias.set_bits(i, bias.bits(0));
  }));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors&, HostTensors& out) {
                    HostTensor& c = out["out"];  // the last row is not written
                    const int64_t columns = c.shape()[1];
                    for (int64_t i = c.size() - columns; i < c.size(); ++i) c.set_bits(i, 0);
                  })));
  CHECK(is_caught(op, cases, [](const HostTensors& in, const Params& params) {
    // rounded to bf16 before the bias
    HostTensors without = in;
    without.erase("bias");
    HostTensors result = reference::runner("gemm_bf16")(without, params);
    if (!in.contains("bias")) return result;
    HostTensor& out = result["out"];
    HostTensor rounded(DType::bf16, {1});
    for (int64_t i = 0; i < out.size(); ++i) {
      rounded.set_value(0, out.value(i));
      out.set_value(i, static_cast<float>(rounded.value(0)) +
                           static_cast<float>(in.at("bias").value(i % out.shape()[1])));
    }
    return result;
  }));
}

TEST_CASE("gemm_bf16 explains wrong arguments", "[gemm][gemm_bf16][errors]") {
  const auto told = [](const HostTensors& inputs, const Params& params = {}) {
    return outputs_error("gemm_bf16", inputs, params);
  };
  CHECK(told(bf16_inputs()) == "no error");
  CHECK(told(with(bf16_inputs(), "a", HostTensor(DType::bf16, {5, 64}, {1, 5}))) == "no error");
  CHECK(told(with(bf16_inputs(), "b", HostTensor(DType::bf16, {9, 65}))) ==
        "tessera: gemm_bf16: argument 'b' has the wrong shape\n"
        "  expected  bf16[N, 64]   (K = 64 from a dim 1)\n"
        "  got       bf16[9, 65] on cpu");
  CHECK(told(with(bf16_inputs(), "b", HostTensor(DType::f16, {9, 64}))) ==
        "tessera: gemm_bf16: argument 'b' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f16[9, 64] on cpu");
  CHECK(told(with(bf16_inputs(), "a", HostTensor(DType::bf16, {5, 64}, {128, 2}))) ==
        "tessera: gemm_bf16: argument 'a' has the wrong strides\n"
        "  expected  1 as one of the last two strides\n"
        "  got       bf16[5, 64], strides [128, 2] on cpu");
  CHECK(told(with(bf16_inputs(), "a", HostTensor(DType::bf16, {5, 64}, {63, 1}))) ==
        "tessera: gemm_bf16: argument 'a' has the wrong strides\n"
        "  expected  strides that do not overlap\n"
        "  got       bf16[5, 64], strides [63, 1] on cpu");
  CHECK(told(with(bf16_inputs(), "bias", HostTensor(DType::f32, {5}))) ==
        "tessera: gemm_bf16: argument 'bias' has the wrong shape\n"
        "  expected  f32[9]   (N = 9 from b dim 0)\n"
        "  got       f32[5] on cpu");
  CHECK(told(bf16_inputs(), {{"out_dtype", std::string("f16")}}) ==
        "tessera: gemm_bf16: parameter 'out_dtype' has a wrong value\n"
        "  expected  {bf16, f32}\n"
        "  got       f16\n"
        "  hint      did you mean 'bf16'?");
}
