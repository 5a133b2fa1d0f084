// Cases of per_channel_cast_and_transpose: values of all kinds, one tile and many.

#include <fmt/format.h>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

/// Columns of different magnitude, runs of tokens as well; some are all zero.
HostTensor graded(int64_t tokens, int64_t hidden) {
  HostTensor x = random_tensor(DType::bf16, {tokens, hidden}, Values::normal, 91);
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t t = i / hidden, h = i % hidden;
    x.set_value(i, x.value(i) * static_cast<double>((h * 7 + t / 32) % 11));
  }
  return x;
}

}  // namespace

std::vector<OpCase> per_channel_cast_and_transpose_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& label, const HostTensor& x, int64_t run, bool round_sf) {
    OpCase test;
    test.label =
        fmt::format("{} {} / {}{}", label, to_string(x.view()), run, round_sf ? " rounded" : "");
    test.inputs["x"] = x;
    test.params = {{"num_per_tokens", run}, {"round_sf", round_sf}};
    cases.push_back(std::move(test));
  };
  for (const int64_t run : {32, 128}) {
    for (const bool round_sf : {false, true}) {
      for (const Dims& shape : {Dims{128, 64}, Dims{256, 192}, Dims{128, 576}, Dims{384, 128}}) {
        add("graded", graded(shape[0], shape[1]), run, round_sf);
      }
      add("nasty", random_tensor(DType::bf16, {256, 128}, Values::nasty, 92), run, round_sf);
      add("bits", random_tensor(DType::bf16, {128, 128}, Values::bits, 93), run, round_sf);
      add("empty", HostTensor(DType::bf16, {0, 64}), run, round_sf);
      add("empty", HostTensor(DType::bf16, {128, 0}), run, round_sf);
    }
  }
  return cases;
}

}  // namespace tessera::test
