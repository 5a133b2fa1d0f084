// Cases of the gradients of the ops that copy and mix residual streams.

#include <fmt/format.h>

#include "tests/support/ops/mhc_inputs.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
std::vector<OpCase> expand_to_mhc_bwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Extents& e, Values values, std::string_view word) {
    OpCase test;
    test.label = e.label(word);
    test.inputs["grad_out"] =
        random_tensor(DType::bf16, joined(e.tokens, {e.streams, e.hidden}), values, 31);
    cases.push_back(std::move(test));
  };
  for (const Extents& e : all_extents()) add(e, Values::normal, "normal");
  add({{3}, 17, 100}, Values::normal, "normal");
  add({{2}, 40, 1280}, Values::normal, "normal");
  add({{11}, 4, 256}, Values::nasty, "nasty");
  add({{4}, 20, 100}, Values::nasty, "nasty");
  add({{5}, 4, 100}, Values::bits, "bits");
  // The rest depends on the order.
  add({{3}, 4, 64}, Values::normal, "large values cancel");
  HostTensor& large = cases.back().inputs.at("grad_out");
  for (int64_t e = 0; e < large.size(); ++e) {
    const int64_t stream = e / 64 % 4;
    if (stream % 2 == 0) large.set_value(e, stream == 0 ? 0x1p30 : -0x1p30);
  }
  add({{2}, 3, 64}, Values::normal, "zeros below 0");
  HostTensor& zeros = cases.back().inputs.at("grad_out");
  for (int64_t e = 0; e < zeros.size(); ++e) zeros.set_value(e, -0.0);
  return cases;
}

std::vector<OpCase> pre_apply_mix_bwd_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Extents& e, Values values, bool accumulates) {
    const Dims rows = joined(e.tokens, {e.streams, e.hidden});
    OpCase test;
    test.label = e.label(accumulates ? "added" : "new");
    test.inputs["grad_out"] = random_tensor(DType::bf16, joined(e.tokens, {e.hidden}), values, 32);
    test.inputs["x"] = random_tensor(DType::bf16, rows, values, 33);
    test.inputs["mix"] = random_tensor(DType::f32, joined(e.tokens, {e.streams}), values, 34);
    if (accumulates) test.inputs["grad_x"] = random_tensor(DType::bf16, rows, values, 35);
    test.may_be_unsupported = e.streams > 16;
    // Sums over the columns in another order; grad_x is one fma, bit for bit.
    test.tolerances = {{"grad_mix", {1e-4, 1e-4}}};
    cases.push_back(std::move(test));
  };
  for (const Extents& e : all_extents()) add(e, Values::normal, true);
  add({{3}, 4, 7168}, Values::normal, false);
  add({{9}, 3, 100}, Values::normal, false);
  add({{0}, 4, 256}, Values::normal, false);
  add({{2}, 17, 64}, Values::normal, true);
  // One column: nothing is summed, so that overflow and cancellation are those of one product.
  add({{40}, 4, 1}, Values::nasty, true);
  add({{40}, 4, 1}, Values::bits, true);
  add({{40}, 4, 1}, Values::nasty, false);
  return cases;
}

}  // namespace tessera::test
