// Cases of the gradients of the mixes of a sub-layer.

#include <fmt/format.h>

#include <limits>

#include "tests/support/ops/mhc_inputs.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
std::vector<OpCase> pre_split_mixes_bwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& tokens, int64_t n, double post_mult, bool accumulates) {
    const int64_t entries = n * (n + 2);
    const auto some = [](const Dims& shape, uint64_t seed) {
      return random_tensor(DType::f32, shape, Values::normal, seed);
    };
    OpCase test;
    test.label = fmt::format("{} n={} post_mult={} {}", to_string(tokens), n, post_mult,
                             accumulates ? "added" : "new");
    test.inputs["grad_pre_mix"] = some(joined(tokens, {n}), 61);
    test.inputs["grad_post_mix"] = some(joined(tokens, {n}), 62);
    test.inputs["grad_comb_logits"] = some(joined(tokens, {n, n}), 63);
    test.inputs["input_mixes"] = some(joined(tokens, {entries}), 64);
    HostTensor post = random_tensor(DType::f32, joined(tokens, {n}), Values::uniform, 65);
    for (int64_t e = 0; e < post.size(); ++e) post.set_value(e, post.value(e) * post_mult);
    test.inputs["post_mix"] = std::move(post);
    test.inputs["scale"] = some({3}, 66);
    test.inputs["base"] = some({entries}, 67);
    if (accumulates) {
      test.inputs["grad_scale"] = some({3}, 68);
      test.inputs["grad_base"] = some({entries}, 69);
    }
    test.params["post_mult_value"] = post_mult;
    test.may_be_unsupported = n > 16;
    test.tolerance = Tolerance{1e-5, 2e-5};
    cases.push_back(std::move(test));
  };
  for (const int64_t n : {4, 1, 2, 3, 5, 8, 16}) add({137}, n, 2, true);
  add({1}, 4, 1, false);
  add({300}, 4, 2, false);
  // Runs are 32 tokens: whole ones, one less and more.
  add({31}, 4, 1, true);
  add({32}, 4, 1, false);
  add({33}, 4, -1.5, true);
  add({2, 3, 5}, 4, 1, true);
  add({1025}, 4, 2, true);
  add({0}, 4, 1, true);
  add({0, 2}, 4, 1, false);
  add({2}, 17, 1, true);

  // Sigmoids that saturate: the gradients of pre_mix vanish, those of scale and base stay finite.
  OpCase hard = cases.front();
  hard.label = "large and infinite";
  HostTensor& mixes = hard.inputs.at("input_mixes");
  for (int64_t e = 0; e < 24 * 8; ++e) mixes.set_value(e, mixes.value(e) * 1e3);
  hard.inputs.at("base").set_value(1, std::numeric_limits<double>::infinity());
  hard.inputs.at("base").set_value(2, -std::numeric_limits<double>::infinity());
  cases.push_back(hard);
  hard.label = "an entry that is no number";
  hard.inputs.at("input_mixes").set_value(24 * 9 + 3, std::numeric_limits<double>::quiet_NaN());
  cases.push_back(std::move(hard));
  return cases;
}

}  // namespace tessera::test
