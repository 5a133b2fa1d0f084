// Cases of the hyper-connection ops: hidden sizes of models and odd ones, one stream and many,
// several token dimensions, values that overflow, cancel or are no numbers.

#include <fmt/format.h>

#include <limits>

#include "tests/support/ops/mhc_inputs.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
std::vector<OpCase> pre_apply_mix_fwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Extents& e, Values values, std::string_view word) {
    OpCase test;
    test.label = e.label(word);
    test.inputs["x"] =
        random_tensor(DType::bf16, joined(e.tokens, {e.streams, e.hidden}), values, 1);
    test.inputs["mix"] = random_tensor(DType::f32, joined(e.tokens, {e.streams}), values, 2);
    cases.push_back(std::move(test));
  };
  for (const Extents& e : all_extents()) add(e, Values::normal, "normal");
  add({{11}, 4, 256}, Values::nasty, "nasty");
  add({{5}, 4, 100}, Values::bits, "bits");
  OpCase many = cases.front();
  many.label = "17 streams";
  many.inputs["x"] = random_tensor(DType::bf16, {2, 17, 64}, Values::normal, 3);
  many.inputs["mix"] = random_tensor(DType::f32, {2, 17}, Values::normal, 4);
  many.may_be_unsupported = true;
  cases.push_back(many);
  return cases;
}

std::vector<OpCase> post_fwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Extents& e, Values values, std::string_view word) {
    OpCase test;
    test.label = e.label(word);
    test.inputs["x"] = random_tensor(DType::bf16, joined(e.tokens, {e.hidden}), values, 5);
    test.inputs["residual"] =
        random_tensor(DType::bf16, joined(e.tokens, {e.streams, e.hidden}), values, 6);
    test.inputs["post_mix"] = random_tensor(DType::f32, joined(e.tokens, {e.streams}), values, 7);
    test.inputs["comb_mix"] =
        random_tensor(DType::f32, joined(e.tokens, {e.streams, e.streams}), values, 8);
    test.may_be_unsupported = e.streams > 8;
    cases.push_back(std::move(test));
  };
  for (const Extents& e : all_extents()) add(e, Values::normal, "normal");
  add({{11}, 4, 256}, Values::nasty, "nasty");
  add({{5}, 4, 100}, Values::bits, "bits");
  return cases;
}

std::vector<OpCase> expand_to_mhc_fwd_cases() {
  std::vector<OpCase> cases;
  for (const Extents& e : all_extents()) {
    OpCase test;
    test.label = e.label("bits");
    test.inputs["x"] = random_tensor(DType::bf16, joined(e.tokens, {e.hidden}), Values::bits, 9);
    test.params["mhc_mult"] = e.streams;
    cases.push_back(std::move(test));
  }
  return cases;
}

std::vector<OpCase> sinkhorn_fwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& tokens, int64_t streams, int64_t repeat, double eps) {
    OpCase test;
    test.label = fmt::format("{} n={} repeat={} eps={}", to_string(tokens), streams, repeat, eps);
    test.inputs["x"] =
        random_tensor(DType::f32, joined(tokens, {streams, streams}), Values::normal, 10);
    test.params["repeat"] = repeat;
    test.params["eps"] = eps;
    test.may_be_unsupported = streams > 4;
    test.tolerance = Tolerance{1.3e-6, 1e-5};
    cases.push_back(std::move(test));
  };
  for (const int64_t streams : {1, 2, 3, 4}) {
    for (const int64_t repeat : {1, 2, 10, 45}) add({19}, streams, repeat, 1e-6);
    add({3}, streams, 10, 0.0);
    add({3}, streams, 10, 0.25);
  }
  add({1}, 4, 10, 1e-6);
  add({300}, 4, 10, 1e-6);
  add({2, 5}, 4, 10, 1e-6);
  add({0}, 4, 10, 1e-6);
  add({2}, 5, 10, 1e-6);

  // Logits that underflow beside the largest, and rows that make their matrix NaN.
  OpCase hard = cases.front();
  hard.label = "large logits, infinities and NaN";
  HostTensor x = random_tensor(DType::f32, {12, 4, 4}, Values::normal, 11);
  for (int64_t i = 0; i < 4 * 16; ++i) x.set_value(i, x.value(i) * 1e4);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  x.set_value(4 * 16 + 5, -kInfinity);
  for (int64_t i = 0; i < 4; ++i) x.set_value(5 * 16 + i, -kInfinity);
  x.set_value(6 * 16 + 1, kInfinity);
  x.set_value(7 * 16 + 15, std::numeric_limits<double>::quiet_NaN());
  hard.inputs["x"] = std::move(x);
  hard.params["repeat"] = int64_t{10};
  cases.push_back(std::move(hard));
  return cases;
}

std::vector<OpCase> pre_split_mixes_fwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& tokens, int64_t streams, double post_mult, double eps) {
    const int64_t entries = streams * (streams + 2);
    OpCase test;
    test.label =
        fmt::format("{} n={} post_mult={} eps={}", to_string(tokens), streams, post_mult, eps);
    test.inputs["input_mixes"] =
        random_tensor(DType::f32, joined(tokens, {entries}), Values::normal, 12);
    test.inputs["scale"] = random_tensor(DType::f32, {3}, Values::normal, 13);
    test.inputs["base"] = random_tensor(DType::f32, {entries}, Values::normal, 14);
    test.params["post_mult_value"] = post_mult;
    test.params["pre_eps"] = eps;
    test.tolerance = Tolerance{1e-5, 2e-5};
    cases.push_back(std::move(test));
  };
  for (const int64_t streams : {1, 2, 3, 4, 5, 8}) add({37}, streams, 2, 0.01);
  add({1}, 4, 1, 1e-6);
  add({300}, 4, 0, 0);
  add({2, 3, 5}, 4, 1, 1e-6);
  add({0}, 4, 1, 1e-6);
  add({1025}, 4, 1.5, 0.25);

  // Sigmoids that saturate, infinities and NaN.
  OpCase hard = cases[3];
  hard.label = "large, infinite and NaN";
  HostTensor& mixes = hard.inputs.at("input_mixes");
  for (int64_t i = 0; i < 24 * 8; ++i) mixes.set_value(i, mixes.value(i) * 1e3);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < 24; ++i) {
    mixes.set_value(24 * 8 + i, kInfinity);
    mixes.set_value(24 * 9 + i, -kInfinity);
    mixes.set_value(24 * 10 + i, std::numeric_limits<double>::quiet_NaN());
  }
  cases.push_back(std::move(hard));
  return cases;
}

}  // namespace tessera::test
