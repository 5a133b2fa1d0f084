// Cases of the Engram ops: sizes of models and odd ones, products that wrap, moduli of every kind.

#include <fmt/format.h>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

OpCase hash_case(int64_t tokens, int64_t layers, int64_t ngram, int64_t tables,
                 const std::string& form) {
  Random random(11);
  const auto fill = [&](HostTensor& tensor, int64_t least, int64_t bound) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.set_bits(i, static_cast<uint64_t>(least + random.below(bound)));
    }
  };
  const int64_t columns = (ngram - 1) * tables;
  HostTensor ids(DType::i32, {tokens, ngram}), multipliers(DType::i64, {layers, ngram});
  HostTensor sizes(DType::i32, {layers, ngram - 1, tables}), offsets(DType::i32, {layers, columns});
  const bool hard = form != "plain";
  fill(ids, hard ? -100'000 : 0, 200'000);
  fill(sizes, 100'000, 900'000);
  fill(offsets, 0, 10'000'000);
  if (hard) {
    for (int64_t i = 0; i < multipliers.size(); ++i) multipliers.set_bits(i, random.next());
    for (int64_t i = 0; i < sizes.size(); i += 3) sizes.set_value(i, i % 2 == 0 ? 1 : 2147483647.0);
    for (int64_t i = 1; i < offsets.size(); i += 3) offsets.set_value(i, 2147483647.0);
    for (int64_t i = 0; i < ids.size(); i += 5) ids.set_value(i, i % 2 == 0 ? -2147483648.0 : -1);
  } else {
    fill(multipliers, 0, 100'000);
  }
  if (form == "sizes out of range") {
    for (int64_t i = 1; i < sizes.size(); i += 2) sizes.set_value(i, i % 4 == 1 ? 0 : -5.0);
  }
  OpCase test;
  test.label = fmt::format("T={} L={} N={} J={} {}", tokens, layers, ngram, tables, form);
  test.inputs = {{"ngram_token_ids", std::move(ids)},
                 {"multipliers", std::move(multipliers)},
                 {"vocab_sizes", std::move(sizes)},
                 {"offsets", std::move(offsets)}};
  return test;
}

OpCase gate_case(const Dims& tokens, int64_t streams, int64_t hidden, bool save) {
  const auto shape = [&](std::initializer_list<int64_t> others) {
    Dims dims = tokens;
    for (const int64_t extent : others) dims.push_back(extent);
    return dims;
  };
  OpCase test;
  test.label =
      fmt::format("{} hc={} D={}{}", to_string(tokens), streams, hidden, save ? " saving" : "");
  test.inputs["hidden_states"] =
      random_tensor(DType::bf16, shape({streams, hidden}), Values::normal, 1);
  test.inputs["k"] = random_tensor(DType::bf16, shape({streams, hidden}), Values::normal, 2);
  test.inputs["v"] = random_tensor(DType::bf16, shape({hidden}), Values::normal, 3);
  test.inputs["weight_fused"] = random_tensor(DType::f32, {streams, hidden}, Values::normal, 4);
  test.params = {{"eps", 1e-20}, {"save_for_backward", save}};
  // 2e-10 at thousands of tokens; here one element that rounds the other way is already 1.5e-9.
  test.tolerance = Tolerance{0, 0, 5e-9};
  return test;
}

OpCase with_strides(OpCase test, const std::string& name, const Dims& strides) {
  const HostTensor& old = test.inputs.at(name);
  HostTensor placed(old.dtype(), old.shape(), strides);
  for (int64_t i = 0; i < old.size(); ++i) placed.set_bits(i, old.bits(i));
  test.label += fmt::format(" {} strides {}", name, to_string(strides));
  test.inputs[name] = std::move(placed);
  return test;
}

}  // namespace

std::vector<OpCase> engram_hash_cases() {
  std::vector<OpCase> cases;
  for (const std::string form : {"plain", "wrapping", "sizes out of range"}) {
    cases.push_back(hash_case(301, 2, 3, 8, form));
    cases.push_back(hash_case(7, 1, 2, 1, form));
    cases.push_back(hash_case(33, 3, 5, 3, form));
    cases.push_back(hash_case(3, 2, 12, 5, form));  // more ids than are unrolled
  }
  cases.push_back(hash_case(0, 2, 3, 8, "plain"));
  cases.push_back(hash_case(4, 0, 3, 8, "plain"));
  cases.push_back(hash_case(4, 2, 1, 8, "plain"));  // no order to hash
  cases.push_back(hash_case(4, 2, 3, 0, "plain"));
  return cases;
}

std::vector<OpCase> engram_gate_fwd_cases() {
  std::vector<OpCase> cases;
  for (const int64_t hidden : {512, 768, 2048, 2560, 3072, 3328, 4096, 6144, 7168}) {
    cases.push_back(gate_case({3}, 4, hidden, hidden % 1024 != 0));
  }
  cases.push_back(gate_case({2}, 4, 9472, true));
  cases.push_back(gate_case({17}, 3, 512, true));
  cases.push_back(gate_case({33}, 1, 512, false));
  cases.push_back(gate_case({2, 5}, 4, 512, true));
  cases.push_back(gate_case({0}, 4, 512, true));
  cases.push_back(gate_case({1300}, 4, 512, true));  // several tokens per block
  const OpCase plain = gate_case({6}, 4, 1024, true);
  cases.push_back(with_strides(plain, "k", {5120, 1280, 1}));
  cases.push_back(with_strides(plain, "k", {1024, 6144, 1}));  // streams outside of tokens
  cases.push_back(with_strides(plain, "k", {4100, 1025, 1}));  // rows that are not aligned
  cases.push_back(with_strides(plain, "v", {1032, 1}));
  cases.push_back(with_strides(gate_case({2, 3}, 2, 512, true), "k", {4800, 1600, 800, 1}));
  OpCase uneven = with_strides(gate_case({2, 3}, 2, 512, true), "v", {2048, 512, 1});
  uneven.may_be_unsupported = true;
  cases.push_back(std::move(uneven));
  OpCase clamped = plain;  // scores far below the clamp: only the sign of u is left
  clamped.label += " clamped";
  clamped.params["clamp_value"] = 100.0;
  clamped.params["eps"] = 0.5;
  cases.push_back(std::move(clamped));
  OpCase zeros = plain;  // u = +0 gives the positive root
  zeros.label += " rows of zeros";
  for (int64_t i = 0; i < 1024; ++i) {
    zeros.inputs["hidden_states"].set_value(i, 0);
    zeros.inputs["k"].set_value(5 * 1024 + i, 0);
  }
  zeros.params["clamp_value"] = 0.25;
  zeros.params["eps"] = 1e-6;
  cases.push_back(std::move(zeros));
  return cases;
}

}  // namespace tessera::test
