// Cases of multilayer_recompute: as many layers as a launch takes, one more and one less, with and
// without the output of the last, the rows of the other ops that stream them.

#include <fmt/format.h>

#include "tests/support/ops/mhc_inputs.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
std::vector<OpCase> multilayer_recompute_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& tokens, int64_t n, int64_t hidden, int64_t layers,
                       int64_t outputs, Values values = Values::normal) {
    OpCase test;
    test.label = fmt::format("{} n={} H={} L={} Q={} values {}", to_string(tokens), n, hidden,
                             layers, outputs, static_cast<int>(values));
    test.inputs["initial_residual"] =
        random_tensor(DType::bf16, joined(tokens, {n, hidden}), values, 70);
    uint64_t seed = 71;
    for (int64_t l = 0; l < layers; ++l) {
      const auto put = [&](const char* list, DType dtype, std::initializer_list<int64_t> others) {
        HostTensor tensor = random_tensor(dtype, joined(tokens, others), values, seed++);
        // Mixes whose sums are about 1, so that ten layers stay in range.
        if (dtype == DType::f32 && values == Values::normal) {
          for (int64_t i = 0; i < tensor.size(); ++i) tensor.set_value(i, tensor.value(i) / 2);
        }
        test.inputs[fmt::format("{}.{}", list, l)] = std::move(tensor);
      };
      put("pre_mix_list", DType::f32, {n});
      if (l >= outputs) continue;
      put("layer_output_list", DType::bf16, {hidden});
      put("post_mix_list", DType::f32, {n});
      put("comb_mix_list", DType::f32, {n, n});
    }
    test.may_be_unsupported = n > 8;
    cases.push_back(std::move(test));
  };
  add({3}, 4, 2560, 3, 2);
  add({3}, 4, 2560, 3, 3);
  add({2}, 4, 7168, 2, 2);
  add({5}, 4, 512, 10, 9);
  add({5}, 4, 512, 10, 10);
  add({4}, 4, 256, 11, 10);
  add({4}, 4, 256, 11, 11);
  add({2}, 4, 128, 21, 20);
  add({37}, 4, 64, 4, 4);
  add({3}, 4, 256, 1, 0);
  add({3}, 4, 256, 1, 1);
  add({9}, 3, 100, 3, 3);
  add({6}, 1, 72, 3, 2);
  add({7}, 2, 33, 2, 2);
  add({3}, 8, 320, 2, 2);
  add({4}, 4, 1, 3, 3);
  add({2}, 9, 64, 2, 2);
  add({2, 3}, 4, 64, 2, 1);
  add({0}, 4, 64, 2, 2);
  add({0, 3}, 4, 64, 2, 2);
  add({3}, 4, 0, 2, 2);
  add({11}, 4, 256, 2, 2, Values::nasty);
  add({5}, 4, 100, 2, 2, Values::bits);
  return cases;
}

}  // namespace tessera::test
