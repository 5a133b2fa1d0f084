// Attention on the executor: the reference against recorded cases of a numpy model, the op against the
// reference, the bits of the tensor cores, the mistakes that the cases catch, what bad calls are told.

#include "tests/reference/attention.h"

#include <cmath>

#include "kernels/attention/parts/fwd_kernel.h"
#include "kernels/jit/target.h"
#include "tests/support/ops/attention_cases.h"
#include "tests/support/ops/golden.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using kernels::attention::ForwardSpec;
using kernels::attention::ForwardTile;
using reference::AttentionMistake;

namespace {

/// One form of the kernel with the sums of the tensor cores. Of the parameters: causal and windows.
HostTensors run_form(const HostTensors& in, const Params& params, const ForwardTile& tile,
                     const char* target = "sm_90a", uint32_t schedule = 0) {
  const HostTensor &q = in.at("q"), &k = in.at("k"), &v = in.at("v");
  const auto integer = [&](const char* name) {
    return params.contains(name) ? std::get<int64_t>(params.at(name)) : -1;
  };
  const bool is_causal = params.contains("causal") && std::get<bool>(params.at("causal"));
  const int64_t left = integer("window_left"), right = is_causal ? 0 : integer("window_right");
  ForwardSpec s{};
  s.width = static_cast<int32_t>(q.shape()[3]);
  s.value_width = static_cast<int32_t>(v.shape()[3]);
  s.is_f16 = q.dtype() == DType::f16 ? 1 : 0;
  s.q_vector = s.k_vector = s.v_vector = s.out_vector = 8;
  s.has_left = left >= 0 ? 1 : 0;
  s.has_right = right >= 0 ? 1 : 0;
  s.tile = tile;
  HostTensor out(q.dtype(), {q.shape()[0], q.shape()[1], q.shape()[2], v.shape()[3]});
  HostTensor lse(DType::f32, {q.shape()[0], q.shape()[2], q.shape()[1]});
  NamedArguments given;
  given.tensors = {
      {"q", q.view()}, {"k", k.view()}, {"v", v.view()}, {"out", out.view()}, {"lse", lse.view()}};
  given.dims = {{"B", q.shape()[0]}, {"Sq", q.shape()[1]}, {"Sk", k.shape()[1]},
                {"h", q.shape()[2]}, {"g", k.shape()[2]},  {"left", left},
                {"right", right},    {"section", 3},       {"device_blocks", 5}};
  const double scale = 1 / std::sqrt(static_cast<double>(s.width));
  given.numbers["c"] = scale * 1.4426950408889634;
  for (const auto& [name, tensor] : {std::pair("q", &q), std::pair("k", &k), std::pair("v", &v)}) {
    const char* const ends[] = {"_of_request", "_of_row", "_of_head"};
    for (int i = 0; i < 3; ++i) given.dims[std::string(name) + ends[i]] = tensor->strides()[i];
  }
  run_with_target_sums(build_forward(s), target, given, schedule);
  return {{"out", std::move(out)}, {"lse", std::move(lse)}};
}

HostTensors normal_inputs(const Dims& q, const Dims& k, int64_t value_width,
                          DType dtype = DType::bf16) {
  return {{"q", random_tensor(dtype, q, Values::normal, 1)},
          {"k", random_tensor(dtype, k, Values::normal, 2)},
          {"v", random_tensor(dtype, {k[0], k[1], k[2], value_width}, Values::normal, 3)}};
}

void check_bits(const HostTensors& want, const HostTensors& got) {
  for (const auto& [name, tensor] : want) {
    CAPTURE(name);
    const bool same = tensor.raw() == got.at(name).raw();
    CHECK(same);
  }
}

}  // namespace

TEST_CASE("the reference of attention gives the recorded bits of the model", "[attention]") {
  const std::vector<GoldenCase> recorded = read_golden(golden_in_repository(), "attention");
  CHECK(recorded.size() == 27);
  for (const GoldenCase& golden : recorded) {
    const HostTensors got = reference::runner(golden.op)(golden.inputs, golden.params);
    for (const auto& [name, want] : golden.outputs) {
      CAPTURE(golden.id, name);
      int64_t wrong = 0;
      for (int64_t i = 0; i < want.size(); ++i) {
        const bool is_nan = std::isnan(want.value(i)) && std::isnan(got.at(name).value(i));
        wrong += !is_nan && want.bits(i) != got.at(name).bits(i);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("attention_fwd equals its reference on the executor", "[attention]") {
  check_products("attention_fwd", attention_fwd_cases());
}

TEST_CASE("attention_fwd has the bits of its definition, whatever the tile and whose turn it is",
          "[attention]") {
  const HostTensors in = normal_inputs({2, 150, 2, 64}, {2, 280, 1, 64}, 64);
  for (const Params& params :
       {Params{}, Params{{"causal", true}},
        Params{{"window_left", int64_t{30}}, {"window_right", int64_t{9}}}}) {
    const HostTensors want = reference::attention(in, params);
    check_bits(want, run_form(in, params, {64, 1, 0}, "sm_90"));
    check_bits(want, run_form(in, params, {64, 0, 0}));
    uint32_t schedule = 0;
    for (const ForwardTile& tile :
         {ForwardTile{64, 2, 1, 0}, ForwardTile{128, 3, 1, 1}, ForwardTile{128, 4, 1, 0}}) {
      CAPTURE(tile.rows, tile.stages);
      check_bits(want, run_form(in, params, tile, "sm_90a", schedule++));
    }
  }
}

TEST_CASE("heads of 192 and 128 take one tile in turns where memory is small, in the same bits",
          "[attention][targets]") {
  const HostTensors in = normal_inputs({1, 70, 2, 192}, {1, 300, 1, 192}, 128);
  const auto on = [&](const char* target) {
    const kernels::jit::TargetScope scope(parse_target(target).value());
    return op_runner("attention_fwd", Device::cpu())(in, {{"causal", true}});
  };
  const HostTensors want = on("sm_80");  // room for both
  check_bits(want, on("sm_89"));
  check_bits(want, on("sm_120a"));
}

TEST_CASE("mistakes in the last bits of attention_fwd change bits of its definition",
          "[attention]") {
  const HostTensors in = normal_inputs({1, 90, 1, 64}, {1, 300, 1, 64}, 64);
  const HostTensors want = reference::attention(in, {});
  for (const AttentionMistake mistake :
       {AttentionMistake::scaled_scores, AttentionMistake::one_class,
        AttentionMistake::small_blocks}) {
    CAPTURE(static_cast<int>(mistake));
    const HostTensors got = reference::attention(in, {}, mistake);
    bool same = true;
    for (const auto& [name, tensor] : want) same = same && tensor.raw() == got.at(name).raw();
    CHECK_FALSE(same);
  }
}

TEST_CASE("a row of attention_fwd does not depend on what other requests hold (N1, N2)",
          "[attention]") {
  const auto run = op_runner("attention_fwd", Device::cpu());
  const HostTensors one = normal_inputs({1, 70, 2, 64}, {1, 140, 1, 64}, 64);
  const Params params = {{"causal", true}};
  const HostTensors alone = run(one, params);
  HostTensors three = normal_inputs({3, 70, 2, 64}, {3, 140, 1, 64}, 64);
  for (auto& [name, tensor] : three) {
    const int64_t size = one.at(name).size();
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const bool is_in_middle = i / size == 1;
      tensor.set_value(i, is_in_middle ? one.at(name).value(i - size)
                          : i % 2 == 0 ? std::nan("")
                                       : INFINITY);
    }
  }
  const HostTensors among = run(three, params);
  for (const auto& [name, want] : alone) {
    CAPTURE(name);
    int64_t wrong = 0;
    for (int64_t i = 0; i < want.size(); ++i) {
      wrong += want.bits(i) != among.at(name).bits(want.size() + i);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a value that is not finite and not seen changes its channel alone, to NaN (N3)",
          "[attention]") {
  const auto run = op_runner("attention_fwd", Device::cpu());
  HostTensors in = normal_inputs({1, 70, 1, 64}, {1, 70, 1, 64}, 64);
  const Params params = {{"causal", true}};
  const HostTensors before = run(in, params);
  in.at("v").set_value(50 * 64 + 7, INFINITY);
  const HostTensors after = run(in, params);
  for (int64_t i = 0; i < 50 * 64; ++i) {  // rows that do not see key 50
    const bool is_nan = std::isnan(after.at("out").value(i));
    if (is_nan ? i % 64 != 7 : after.at("out").bits(i) != before.at("out").bits(i)) {
      FAIL_CHECK("element " << i);
    }
  }
  CHECK(after.at("lse").raw() == before.at("lse").raw());
}

TEST_CASE("the cases of attention_fwd catch mistakes (A60 to A68)", "[attention][mutants]") {
  check_mutants("attention_fwd", attention_fwd_cases(), AttentionMistake::negative_zero,
                [](const HostTensors& in, const Params& params, AttentionMistake mistake) {
                  return reference::attention(in, params, mistake);
                });
}

TEST_CASE("attention_fwd explains wrong arguments (A12)", "[attention][errors]") {
  const auto told = [](const Dims& q, const Dims& k, int64_t value_width,
                       const Params& params = {}) {
    return outputs_error("attention_fwd", normal_inputs(q, k, value_width), params);
  };
  const auto of = [&](const Params& params) {
    return told({1, 2, 4, 64}, {1, 3, 2, 64}, 64, params);
  };
  const auto says = [](const std::string& text, const std::string& what,
                       const std::string& expected, const std::string& got) {
    CAPTURE(text);
    CHECK(text.starts_with("tessera: attention_fwd: " + what + "\n"));
    CHECK(text.find("\n  expected  " + expected) != std::string::npos);
    CHECK(text.find("\n  got       " + got) != std::string::npos);
  };
  CHECK(of({}) == "no error");
  says(told({1, 2, 3, 64}, {1, 3, 2, 64}, 64), "the heads of 'q' are no multiple of those of 'k'",
       "h % g = 0", "h = 3 from q dim 2, g = 2 from k dim 2");
  const std::string widths = "the heads of 'v' and 'q' have extents that are not supported";
  says(told({1, 2, 4, 80}, {1, 3, 2, 80}, 80), widths, "dk and dv of 64 and 64, 96", "80 and 80");
  says(told({1, 2, 4, 64}, {1, 3, 2, 64}, 128), widths, "dk and dv of 64 and 64, 96", "64 and 128");
  says(told({1, 2, 4, 64}, {2, 3, 2, 64}, 64), "argument 'k' has the wrong shape", "bf16[1, ",
       "bf16[2, 3, 2, 64] on cpu");
  says(of({{"scale", 0.0}}), "parameter 'scale' has a wrong value", "a finite number above 0", "0");
  says(of({{"scale", -1.0}}), "parameter 'scale' has a wrong value", "a finite number above 0",
       "-1");
  says(of({{"scale", 1e-60}}), "parameter 'scale' has a wrong value", "a finite number above 0",
       "1e-60");
  says(of({{"softcap", -1.0}}), "parameter 'softcap' has a wrong value", "0 for none", "-1");
  says(of({{"causal", true}, {"window_right", int64_t{3}}}),
       "parameter 'window_right' goes without causal", "window_right <= 0", "window_right = 3");
  says(of({{"window_left", int64_t{-2}}}), "parameter 'window_left' has a wrong value", "int >= -1",
       "-2");
  says(of({{"split_len", int64_t{128}}}), "parameter 'split_len' is not supported", "0", "128");
}
