// Cases of the backward hyper-connection ops.

#include <fmt/format.h>

#include <limits>

#include "tests/support/ops/mhc_inputs.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
std::vector<OpCase> sinkhorn_bwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& tokens, int64_t streams, int64_t repeat, double eps) {
    const Dims shape = joined(tokens, {streams, streams});
    OpCase test;
    test.label = fmt::format("{} n={} repeat={} eps={}", to_string(tokens), streams, repeat, eps);
    test.inputs["grad_out"] = random_tensor(DType::f32, shape, Values::normal, 21);
    test.inputs["x"] = random_tensor(DType::f32, shape, Values::normal, 22);
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

  // Logits that underflow beside the largest; a large eps keeps the sums from vanishing.
  add({8}, 4, 10, 0.25);
  HostTensor& large = cases.back().inputs.at("x");
  for (int64_t i = 0; i < large.size(); ++i) large.set_value(i, large.value(i) * 1e3);
  cases.back().label += " large logits";

  // Rows that make their matrix NaN, and infinite gradients.
  add({5}, 4, 10, 1e-6);
  HostTensor& x = cases.back().inputs.at("x");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < 4; ++i) x.set_value(i, -kInfinity);
  x.set_value(16 + 1, kInfinity);
  x.set_value(2 * 16 + 15, std::numeric_limits<double>::quiet_NaN());
  cases.back().inputs.at("grad_out").set_value(3 * 16, kInfinity);
  cases.back().label += " infinities and NaN";
  return cases;
}

std::vector<OpCase> post_bwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& tokens, int64_t streams, int64_t hidden, Values values) {
    const int64_t n = streams;
    OpCase test;
    test.label = fmt::format("{} n={} H={} values {}", to_string(tokens), n, hidden,
                             static_cast<int>(values));
    test.inputs["grad_out"] = random_tensor(DType::bf16, joined(tokens, {n, hidden}), values, 23);
    test.inputs["x"] = random_tensor(DType::bf16, joined(tokens, {hidden}), values, 24);
    test.inputs["residual"] = random_tensor(DType::bf16, joined(tokens, {n, hidden}), values, 25);
    test.inputs["post_mix"] = random_tensor(DType::f32, joined(tokens, {n}), values, 26);
    test.inputs["comb_mix"] = random_tensor(DType::f32, joined(tokens, {n, n}), values, 27);
    test.may_be_unsupported = n > 4;
    // Sums over the columns; grad_x and grad_residual are chains, bit for bit.
    test.tolerances = {{"grad_post_mix", {1e-4, 1e-4}}, {"grad_comb_mix", {1e-4, 1e-4}}};
    cases.push_back(std::move(test));
  };
  for (const int64_t hidden : {7168, 4096, 2560, 1280, 512, 256})
    add({3}, 4, hidden, Values::normal);
  for (const int64_t hidden : {1, 8, 33, 72, 100, 1000, 1600, 2056}) {
    add({4}, 4, hidden, Values::normal);
  }
  for (const int64_t streams : {1, 2, 3, 5}) add({9}, streams, 264, Values::normal);
  add({37}, 4, 256, Values::normal);
  add({2, 3}, 4, 64, Values::normal);
  add({0}, 4, 64, Values::normal);
  add({0, 3}, 4, 64, Values::normal);
  add({3}, 4, 0, Values::normal);
  // One column: nothing is summed, so that overflow and cancellation are those of one product.
  add({40}, 4, 1, Values::nasty);
  add({40}, 4, 1, Values::bits);
  return cases;
}

}  // namespace tessera::test
