// Cases of routers from the tokens: the product alone, and with both routings.

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

struct Size {
  int64_t tokens = 9, experts = 64, hidden = 72;
};

/// Tokens and weights whose logits are a few units apart.
OpCase router(const Size& s, kernels::Params params = {}) {
  OpCase test;
  test.label = fmt::format("T={} E={} H={}", s.tokens, s.experts, s.hidden);
  test.inputs["x"] = random_tensor(DType::bf16, {s.tokens, s.hidden}, Values::normal, 91);
  HostTensor w = random_tensor(DType::bf16, {s.experts, s.hidden}, Values::normal, 92);
  const double scale = 2 / std::sqrt(static_cast<double>(s.hidden));
  for (int64_t i = 0; i < w.size(); ++i) w.set_value(i, w.value(i) * scale);
  test.inputs["w"] = std::move(w);
  test.params = std::move(params);
  return test;
}

OpCase labelled(OpCase test, const std::string& text) {
  test.label += " " + text;
  return test;
}

int64_t tokens_of(const OpCase& test) {
  return test.inputs.at("x").shape()[0];
}

int64_t experts_of(const OpCase& test) {
  return test.inputs.at("w").shape()[0];
}

void set_row(HostTensor& matrix, int64_t row, double value) {
  const int64_t columns = matrix.shape()[1];
  for (int64_t i = 0; i < columns; ++i) matrix.set_value(row * columns + i, value);
}

OpCase with_special_tokens(OpCase test) {
  const int64_t hidden = test.inputs.at("x").shape()[1];
  test.inputs["x"].set_value(1 * hidden + hidden - 1, kNan);
  test.inputs["x"].set_value(2 * hidden, kInfinity);
  set_row(test.inputs["x"], 3, 0);
  test.inputs["w"].set_value(5 * hidden + 1, -kInfinity);
  return labelled(std::move(test), "special");
}

OpCase gate(const Size& s, int64_t topk, kernels::Params params = {}) {
  OpCase test = router(s, std::move(params));
  test.params["num_topk"] = topk;
  test.tolerances["topk_weights"] = Tolerance{1e-5, 1e-8};  // exp and log1p
  test.tolerances["scores"] = Tolerance{1e-5, 1e-8};
  return labelled(std::move(test), fmt::format("K={}", topk));
}

OpCase by_table(const Size& s, int64_t topk, kernels::Params params = {}, bool narrow = false) {
  constexpr int64_t kEntries = 50;
  OpCase test = gate(s, topk, std::move(params));
  test.params.erase("num_topk");
  test.params["routing"] = std::string("hash");
  Random random(93);
  test.inputs["token_ids"] = tensor_by(narrow ? DType::i32 : DType::i64, {s.tokens},
                                       [&](int64_t) { return random.below(kEntries); });
  test.inputs["table"] =
      tensor_by(DType::i32, {kEntries, topk}, [&](int64_t) { return random.below(s.experts); });
  return labelled(std::move(test), narrow ? "hash i32" : "hash");
}

/// The last rows are padding, some of them with NaN.
OpCase padded(OpCase test, int64_t num_tokens) {
  test.inputs["num_tokens"] = tensor_of(DType::i32, {1}, {static_cast<double>(num_tokens)});
  for (int64_t t = std::max<int64_t>(num_tokens, 0); t < tokens_of(test); t += 2) {
    set_row(test.inputs["x"], t, kNan);
  }
  return labelled(std::move(test), fmt::format("num_tokens={}", num_tokens));
}

HostTensor flags(int64_t tokens, int64_t every) {
  return tensor_by(DType::boolean, {tokens}, [&](int64_t t) { return t % every == 0 ? 1 : 0; });
}

OpCase masked(OpCase test) {
  test.inputs["mask"] = flags(tokens_of(test), 2);
  set_row(test.inputs["x"], 3, kNan);
  return labelled(std::move(test), "masked");
}

OpCase biased(OpCase test, bool images) {
  const Dims shape = {experts_of(test)};
  test.inputs["bias"] = random_tensor(DType::f32, shape, Values::normal, 94);
  if (images) {
    test.inputs["image_bias"] = random_tensor(DType::f32, shape, Values::normal, 95);
    test.inputs["image_token_mask"] = flags(tokens_of(test), 3);
  }
  return labelled(std::move(test), images ? "image_bias" : "bias");
}

OpCase fixed(OpCase test) {
  const auto topk = std::get<int64_t>(test.params.at("num_topk"));
  Random random(96);
  test.inputs["unmapped_topk_idx"] = tensor_by(
      DType::i64, {tokens_of(test), topk}, [&](int64_t) { return random.below(experts_of(test)); });
  test.inputs["fix_routing_mask"] = flags(tokens_of(test), 2);
  return labelled(std::move(test), "fixed");
}

OpCase mapped(OpCase test, int64_t columns) {
  const int64_t all = experts_of(test);
  test.inputs["to_physical_map"] = tensor_by(
      DType::i32, {all, columns}, [&](int64_t i) { return i % 11 == 3 ? -1 : i * 7 % all; });
  test.inputs["logical_count"] =
      tensor_by(DType::i32, {all}, [&](int64_t e) { return e % columns + 1; });
  return labelled(std::move(test), "mapped");
}

/// Three different experts, each many times.
OpCase tied(OpCase test) {
  HostTensor& w = test.inputs["w"];
  const int64_t hidden = w.shape()[1];
  for (int64_t i = 3 * hidden; i < w.size(); ++i) w.set_bits(i, w.bits(i % (3 * hidden)));
  return labelled(std::move(test), "ties");
}

OpCase unknown(OpCase test) {
  HostTensor &ids = test.inputs["token_ids"], &table = test.inputs["table"];
  ids.set_value(0, -1);
  ids.set_value(1, 50);
  for (int64_t i = 0; i < table.size(); i += 3) {
    table.set_value(i, i % 2 == 0 ? -1 : static_cast<double>(experts_of(test)));
  }
  return labelled(std::move(test), "out of range");
}

}  // namespace

std::vector<OpCase> router_logits_cases() {
  std::vector<OpCase> cases;
  for (const Size& s : std::vector<Size>{{1, 8, 512},
                                         {1, 8, 1024},
                                         {3, 9, 1025},
                                         {16, 64, 1032},
                                         {17, 65, 2049},
                                         {64, 7, 1040},
                                         {65, 7, 1040},
                                         {70, 130, 33},
                                         {1, 1, 1},
                                         {66, 1, 2},
                                         {0, 8, 64},
                                         {5, 0, 64}}) {
    cases.push_back(router(s));
  }
  for (const int64_t tokens : {9, 67}) {
    cases.push_back(strided(router({tokens, 12, 1040}), "x", {1048, 1}));
    cases.push_back(strided(router({tokens, 12, 40}), "x", {43, 1}));
    cases.push_back(with_special_tokens(router({tokens, 12, 1040})));
  }
  return cases;
}

std::vector<OpCase> moe_gate_cases() {
  const kernels::Params kSaved = {
      {"save_scores", true}, {"save_logits", true}, {"routed_scaling_factor", 2.5}};
  const kernels::Params kShared = {
      {"use_shared_as_routed", true}, {"num_shared_experts", int64_t{2}}, {"ep_rank", int64_t{3}}};
  std::vector<OpCase> cases;
  for (const auto& [size, topk] : std::vector<std::pair<Size, int64_t>>{{{9, 256, 72}, 6},
                                                                        {{17, 384, 40}, 8},
                                                                        {{5, 30, 1025}, 5},
                                                                        {{3, 512, 33}, 6},
                                                                        {{33, 32, 16}, 32},
                                                                        {{1, 1, 1}, 1}}) {
    cases.push_back(gate(size, topk, kSaved));
    cases.push_back(biased(gate(size, topk), size.experts % 4 == 0));
  }
  cases.push_back(gate({0, 64, 40}, 4, kSaved));
  cases.push_back(gate({9, 64, 40}, 30, kShared));
  cases.push_back(mapped(gate({40, 64, 40}, 4), 5));
  cases.push_back(fixed(gate({9, 64, 40}, 4, kSaved)));
  cases.push_back(masked(fixed(biased(gate({20, 64, 40}, 4, kSaved), true))));
  cases.push_back(strided(fixed(gate({9, 64, 40}, 4)), "unmapped_topk_idx", {7, 1}));
  cases.push_back(tied(gate({20, 64, 40}, 6, kSaved)));
  cases.push_back(strided(gate({9, 64, 40}, 4), "x", {43, 1}));
  cases.push_back(with_special_tokens(gate({9, 64, 40}, 4, kSaved)));
  cases.push_back(masked(with_special_tokens(gate({9, 64, 40}, 4, kSaved))));
  cases.push_back(gate({2113, 8, 16}, 2));  // blocks of more tokens
  for (const int64_t num_tokens : {-1, 0, 3, 16, 17, 40}) {
    cases.push_back(padded(gate({37, 30, 24}, 6, kSaved), num_tokens));
  }
  cases.push_back(padded(masked(fixed(gate({20, 64, 40}, 4, kSaved))), 9));

  const kernels::Params kInverse = {{"num_shared_experts", int64_t{2}},
                                    {"routed_scaling_factor", 2.5},
                                    {"save_logits", true},
                                    {"save_scores", true}};
  const kernels::Params kRouted = {{"num_shared_experts", int64_t{1}},
                                   {"routed_scaling_factor", 1.5},
                                   {"scale", std::string("routed")},
                                   {"idx_dtype", std::string("i64")}};
  for (const bool narrow : {false, true}) {
    for (const kernels::Params& params : {kernels::Params{}, kInverse, kRouted}) {
      cases.push_back(by_table({19, 64, 40}, 6, params, narrow));
    }
  }
  for (const int64_t topk : {1, 8, 9, 17, 30}) {
    cases.push_back(by_table({18, 40, 1030}, topk, kInverse));
  }
  for (const int64_t num_tokens : {-1, 0, 3, 16, 17, 40}) {
    cases.push_back(padded(by_table({37, 30, 24}, 6, kInverse), num_tokens));
  }
  cases.push_back(unknown(by_table({21, 30, 24}, 6, kRouted)));
  cases.push_back(with_special_tokens(by_table({21, 30, 24}, 6, kRouted)));
  cases.push_back(by_table({0, 30, 24}, 6));
  cases.push_back(by_table({2114, 8, 16}, 3));
  return cases;
}

}  // namespace tessera::test
