// attention_varlen_fwd on the executor: against its reference, against attention_fwd request by request, mistakes and bad
// calls.

#include "tests/reference/attention.h"
#include "tests/support/ops/attention_cases.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using reference::AttentionMistake;

TEST_CASE("attention_varlen_fwd equals its reference on the executor", "[attention]") {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products("attention_varlen_fwd", attention_varlen_fwd_cases());
}

TEST_CASE("packed requests have the bits that attention_fwd gives each alone (A05, A06)",
          "[attention]") {
  const auto packed = op_runner("attention_varlen_fwd", Device::cpu());
  const auto alone = op_runner("attention_fwd", Device::cpu());
  const PackedSize size = {{130, 5, 66}, {200, 140, 66}, 2, 1, 64, 64, 2};
  const Params params = {{"causal", true}, {"window_left", int64_t{150}}};
  const HostTensors in = normal_packed("", size).inputs;
  const HostTensors got = packed(in, params);
  int64_t q_row = 0, k_row = 0;
  for (size_t b = 0; b < size.queries.size(); ++b) {
    HostTensors one;
    const auto part = [&](const char* name, int64_t first, int64_t rows) {
      const HostTensor& from = in.at(name);
      const int64_t row = from.shape()[1] * from.shape()[2];
      return tensor_by(from.dtype(), {1, rows, from.shape()[1], from.shape()[2]},
                       [&](int64_t i) { return from.value(first * row + i); });
    };
    one["q"] = part("q", q_row, size.queries[b]);
    one["k"] = part("k", k_row, size.keys[b]), one["v"] = part("v", k_row, size.keys[b]);
    const HostTensors want = alone(one, params);
    const HostTensor &out = want.at("out"), &lse = want.at("lse");
    int64_t wrong = 0;
    for (int64_t i = 0; i < out.size(); ++i) {
      wrong += out.bits(i) != got.at("out").bits(q_row * 2 * 64 + i);
    }
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t i = 0; i < size.queries[b]; ++i) {
        wrong += lse.bits(head * size.queries[b] + i) !=
                 got.at("lse").bits(head * in.at("q").shape()[0] + q_row + i);
      }
    }
    CAPTURE(b);
    CHECK(wrong == 0);
    q_row += size.queries[b], k_row += size.keys[b];
  }
}

TEST_CASE("the cases of attention_varlen_fwd catch mistakes (A60 to A68)", "[attention][mutants]") {
  check_mutants("attention_varlen_fwd", attention_varlen_fwd_cases(),
                AttentionMistake::exchanged_heads,
                [](const HostTensors& in, const Params& params, AttentionMistake mistake) {
                  return reference::attention(in, params, mistake);
                });
}

TEST_CASE("attention_varlen_fwd explains bounds that are out of order", "[attention][errors]") {
  HostTensors in = normal_packed("", {{20, 20}, {30, 30}, 1, 1, 64, 64, 0}).inputs;
  const auto run = op_runner("attention_varlen_fwd", Device::cpu());
  const auto told = [&](const char* name, int64_t place, double value) -> std::string {
    HostTensors bad = in;
    bad.at(name).set_value(place, value);
    try {
      run(bad, {});
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  for (const auto& [text, got] :
       {std::pair{told("cu_q", 0, 1), "1 at [0]"}, std::pair{told("cu_q", 1, 50), "50 at [1]"},
        std::pair{told("cu_k", 2, 29), "29 at [2]"}}) {
    CAPTURE(text);
    CHECK(text.starts_with("tessera: attention_varlen_fwd: argument 'cu_"));
    CHECK(text.find("has a value out of range") != std::string::npos);
    CHECK(text.find(std::string("\n  got       ") + got) != std::string::npos);
  }
}
