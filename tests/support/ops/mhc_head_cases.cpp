// Cases of the weights that the head reads and of their gradients.

#include <fmt/format.h>

#include <limits>

#include "tests/support/ops/mhc_inputs.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

/// Rows of n entries, `pitch` apart.
HostTensor rows(const Dims& tokens, int64_t n, int64_t pitch, uint64_t seed) {
  const Dims shape = joined(tokens, {n});
  Dims strides = shape;
  int64_t stride = pitch;
  for (int i = shape.rank - 2; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  strides[shape.rank - 1] = 1;
  return random_tensor(DType::f32, shape, strides, Values::normal, seed);
}

}  // namespace

std::vector<OpCase> head_compute_mix_fwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& tokens, int64_t n, int64_t pitch, double eps) {
    OpCase test;
    test.label = fmt::format("{} n={} pitch={} eps={}", to_string(tokens), n, pitch, eps);
    test.inputs["input_mix"] = rows(tokens, n, pitch, 41);
    test.inputs["scale"] = random_tensor(DType::f32, {1}, Values::normal, 42);
    test.inputs["base"] = random_tensor(DType::f32, {n}, Values::normal, 43);
    test.params["pre_eps"] = eps;
    test.tolerance = Tolerance{1e-5, 1e-6};
    cases.push_back(std::move(test));
  };
  add({37}, 4, 4, 0.01);
  add({37}, 4, 24, 0.01);  // four columns of a projection
  for (const int64_t n : {1, 2, 3, 5, 17}) add({37}, n, n, 0.01);
  add({1}, 4, 4, 1e-6);
  add({300}, 4, 24, 0);
  add({2, 3, 5}, 4, 24, 1e-6);
  add({2, 3}, 4, 4, 1e-6);
  add({0}, 4, 4, 1e-6);
  add({1025}, 4, 7, 0.25);

  // Sigmoids that saturate, infinities and NaN.
  OpCase hard = cases.front();
  hard.label = "large, infinite and NaN";
  HostTensor& mix = hard.inputs.at("input_mix");
  for (int64_t e = 0; e < 4 * 8; ++e) mix.set_value(e, mix.value(e) * 1e3);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < 4; ++i) {
    mix.set_value(4 * 8 + i, kInfinity);
    mix.set_value(4 * 9 + i, -kInfinity);
    mix.set_value(4 * 10 + i, std::numeric_limits<double>::quiet_NaN());
  }
  cases.push_back(std::move(hard));
  return cases;
}

std::vector<OpCase> head_compute_mix_bwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& tokens, int64_t n, int64_t pitch, bool accumulates) {
    OpCase test;
    test.label = fmt::format("{} n={} pitch={} {}", to_string(tokens), n, pitch,
                             accumulates ? "added" : "new");
    test.inputs["grad_out"] = random_tensor(DType::f32, joined(tokens, {n}), Values::normal, 44);
    test.inputs["input_mix"] = rows(tokens, n, pitch, 45);
    test.inputs["scale"] = random_tensor(DType::f32, {1}, Values::normal, 46);
    test.inputs["base"] = random_tensor(DType::f32, {n}, Values::normal, 47);
    if (accumulates) {
      test.inputs["grad_scale"] = random_tensor(DType::f32, {1}, Values::normal, 48);
      test.inputs["grad_base"] = random_tensor(DType::f32, {n}, Values::normal, 49);
    }
    test.may_be_unsupported = n > 256;
    test.tolerance = Tolerance{1e-5, 1e-5};
    cases.push_back(std::move(test));
  };
  add({37}, 4, 4, true);
  add({37}, 4, 24, false);  // four columns of a projection
  for (const int64_t n : {1, 2, 3, 5, 17, 256}) add({137}, n, n, true);
  add({1}, 4, 4, false);
  // Runs are 256 tokens: whole ones, one more, several that one row adds.
  add({255}, 4, 4, true);
  add({256}, 4, 4, false);
  add({257}, 4, 24, true);
  add({2, 3, 500}, 4, 24, false);
  add({0}, 4, 4, true);
  add({0, 3}, 4, 4, false);
  add({2}, 257, 257, false);

  // Sigmoids that saturate: their gradients vanish.
  OpCase hard = cases.front();
  hard.label = "large and infinite";
  HostTensor& mix = hard.inputs.at("input_mix");
  for (int64_t e = 0; e < 4 * 8; ++e) mix.set_value(e, mix.value(e) * 1e3);
  hard.inputs.at("base").set_value(1, std::numeric_limits<double>::infinity());
  hard.inputs.at("base").set_value(2, -std::numeric_limits<double>::infinity());
  cases.push_back(hard);
  hard.label = "an entry that is no number";
  mix.set_value(4 * 9 + 3, std::numeric_limits<double>::quiet_NaN());
  cases.push_back(std::move(hard));
  return cases;
}

}  // namespace tessera::test
