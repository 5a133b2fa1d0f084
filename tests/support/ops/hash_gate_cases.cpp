// Cases of routing by a table: models, all dtypes and options, padding, values out of range.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

HostTensor random_ids(DType dtype, Dims shape, int64_t bound, uint64_t seed) {
  Random random(seed);
  return tensor_by(dtype, shape, [&](int64_t) { return random.below(bound); });
}

struct Size {
  int64_t tokens, topk, experts, entries = 50;
  DType token_dtype = DType::i64;
};

OpCase gate_case(const Size& s, kernels::Params params = {}) {
  OpCase test;
  test.label = fmt::format("T={} K={} E={} V={} {}", s.tokens, s.topk, s.experts, s.entries,
                           name(s.token_dtype));
  test.inputs["token_ids"] = random_ids(s.token_dtype, {s.tokens}, s.entries, 1);
  test.inputs["table"] = random_ids(DType::i32, {s.entries, s.topk}, s.experts, 2);
  test.inputs["logits"] = random_tensor(DType::f32, {s.tokens, s.experts}, Values::normal, 3);
  test.params = std::move(params);
  test.tolerances["topk_weights"] = Tolerance{1e-5, 1e-8};  // exp and log1p
  return test;
}

OpCase padded(OpCase test, int64_t num_tokens) {
  test.label += fmt::format(" num_tokens={}", num_tokens);
  test.inputs["num_tokens"] = tensor_of(DType::i32, {1}, {static_cast<double>(num_tokens)});
  return test;
}

OpCase mask_case(int64_t tokens, int64_t topk, int64_t num_tokens, DType dtype, bool weights) {
  OpCase test;
  test.label = fmt::format("T={} K={} {} of them {}{}", tokens, topk, num_tokens, name(dtype),
                           weights ? " weights" : "");
  test.inputs["num_tokens"] = tensor_of(DType::i32, {1}, {static_cast<double>(num_tokens)});
  test.inputs["topk_idx"] = random_tensor(dtype, {tokens, topk}, Values::bits, 4);
  if (weights) {
    test.inputs["topk_weights"] = random_tensor(DType::f32, {tokens, topk}, Values::bits, 5);
  }
  return test;
}

void add_out_of_range(std::vector<OpCase>& cases, int64_t experts) {
  OpCase unknown =
      gate_case({11, 4, experts, 50, DType::i64}, {{"num_shared_experts", int64_t{2}}});
  unknown.label += " tokens out of range";
  unknown.inputs["token_ids"] =
      tensor_of(DType::i64, {11}, {3, -1, 49, 50, 4294967299, -4294967293, 0, 1e18, 7, 8, 9});
  cases.push_back(unknown);
  OpCase nowhere = gate_case({23, 4, experts}, {{"scale", std::string("routed")}});
  nowhere.label += " experts out of range";
  HostTensor& table = nowhere.inputs["table"];
  for (int64_t i = 0; i < table.size(); i += 3) {
    table.set_value(i, i % 2 == 0 ? -1 : i % 5 == 0 ? 2147483647.0 : static_cast<double>(experts));
  }
  cases.push_back(std::move(nowhere));
  OpCase infinite = gate_case({60, 4, experts}, {{"num_shared_experts", int64_t{2}}});
  infinite.label += " logits that are not finite";
  HostTensor& some = infinite.inputs["logits"];
  for (int64_t t = 0; t < 60; ++t) {
    some.set_value(t * experts + t % experts, t % 3 == 0   ? kNan
                                              : t % 3 == 1 ? kInfinity
                                                           : -kInfinity);
  }
  cases.push_back(padded(infinite, 55));
  cases.push_back(std::move(infinite));
}

}  // namespace

std::vector<OpCase> hash_gate_cases() {
  const kernels::Params kShared = {{"num_shared_experts", int64_t{2}},
                                   {"routed_scaling_factor", 2.5}};
  const kernels::Params kRouted = {{"num_shared_experts", int64_t{1}},
                                   {"routed_scaling_factor", 1.5},
                                   {"scale", std::string("routed")},
                                   {"idx_dtype", std::string("i64")}};
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::i64, DType::i32}) {
    for (const kernels::Params& params : {kernels::Params{}, kShared, kRouted}) {
      cases.push_back(gate_case({37, 6, 256, 50, dtype}, params));
      cases.push_back(padded(gate_case({19, 8, 64, 50, dtype}, params), 12));
    }
  }
  for (const int64_t topk : {1, 2, 3, 4, 5, 9, 16, 17, 30, 32}) {
    cases.push_back(gate_case({9, topk, 40}));
  }
  cases.push_back(gate_case({5, 30, 40}, kShared));
  cases.push_back(gate_case({300, 6, 384, 1}));
  cases.push_back(gate_case({3, 4, 1}));  // the same expert in all slots
  cases.push_back(gate_case({0, 4, 9}));
  cases.push_back(gate_case({1, 1, 1, 1}));
  cases.push_back(strided(gate_case({17, 6, 30}, kShared), "logits", {37, 1}));
  cases.push_back(strided(gate_case({17, 6, 32}, kShared), "logits", {37, 1}));
  cases.push_back(strided(gate_case({17, 6, 32}, kShared), "logits", {40, 1}));
  cases.push_back(gate_case({9, 6, 516}));  // rows too long to be read whole
  for (const int64_t num_tokens : {-2147483647, -1, 0, 1, 16, 17, 18, 2147483647}) {
    cases.push_back(padded(gate_case({17, 6, 30}, kRouted), num_tokens));
  }

  OpCase scores = gate_case({40, 6, 30});
  scores.label += " logits from -110 to 90";
  HostTensor& logits = scores.inputs["logits"];
  for (int64_t i = 0; i < logits.size(); ++i) {
    logits.set_value(i, static_cast<double>(i / 30) * 5 - 110 + static_cast<double>(i % 30) / 8);
  }
  scores.tolerances["topk_weights"] = Tolerance{1e-4, 1e-8};  // subnormal scores have few bits
  cases.push_back(std::move(scores));

  for (const int64_t experts : {30, 32})
    add_out_of_range(cases, experts);  // 32: whole rows are read
  return cases;
}

std::vector<OpCase> mask_padded_topk_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::i32, DType::i64}) {
    for (const bool weights : {false, true}) {
      for (const int64_t num_tokens : {-5, 0, 1, 12, 36, 37, 38, 2147483647}) {
        cases.push_back(mask_case(37, 6, num_tokens, dtype, weights));
      }
      cases.push_back(mask_case(300, 9, 130, dtype, weights));
      cases.push_back(mask_case(0, 6, 3, dtype, weights));
      cases.push_back(mask_case(5, 1, 3, dtype, weights));
    }
    OpCase apart = strided(mask_case(11, 5, 4, dtype, true), "topk_idx", {9, 1});
    cases.push_back(strided(std::move(apart), "topk_weights", {6, 1}));
  }
  return cases;
}

}  // namespace tessera::test
