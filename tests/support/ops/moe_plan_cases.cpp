// Cases of moe_plan: all ways to sort, ids of both dtypes, every optional tensor present and absent, padding tokens with
// ids that are none, ids out of range, rows that are too few, too many and none.

#include <fmt/format.h>

#include "tests/support/ops/expert_mapping.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

HostTensor narrowed(const HostTensor& ids) {
  return tensor_by(DType::i32, ids.shape(), [&](int64_t i) { return ids.value(i); });
}

struct Sizes {
  int64_t tokens, topk, experts, alignment;
};

OpCase plan(const Sizes& s, bool is_narrow = false) {
  OpCase test;
  test.label = fmt::format("T={} K={} E={} A={}{}", s.tokens, s.topk, s.experts, s.alignment,
                           is_narrow ? " i32" : "");
  const HostTensor ids = random_topk_idx(s.tokens, s.topk, s.experts, 21);
  test.inputs["topk_idx"] = is_narrow ? narrowed(ids) : ids;
  test.params = {{"num_experts", s.experts}, {"alignment", s.alignment}};
  return test;
}

/// With weights, NaN and infinity among them, and m_indices.
OpCase whole(OpCase test) {
  test.label += " weights, m_indices";
  const Dims shape = test.inputs["topk_idx"].shape();
  HostTensor weights = random_tensor(DType::f32, shape, Values::normal, 5);
  const uint64_t kSpecial[] = {0x7FC00001, 0x7F800000, 0x80000000, 0x00000001};
  for (int64_t i = 0; i < 4 && 3 * i < weights.size(); ++i) weights.set_bits(3 * i, kSpecial[i]);
  test.inputs["topk_weights"] = std::move(weights);
  test.params["save_m_indices"] = true;
  return test;
}

/// Tokens from `count` on are padding, whose ids are none.
OpCase padded(OpCase test, int64_t count) {
  test.label += fmt::format(" num_tokens={}", count);
  test.inputs["num_tokens"] = tensor_of(DType::i32, {1}, {static_cast<double>(count)});
  HostTensor& ids = test.inputs["topk_idx"];
  const int64_t topk = ids.shape()[1];
  for (int64_t i = std::max<int64_t>(count, 0) * topk; i < ids.size(); ++i) {
    if (i % 3 == 0) ids.set_value(i, 1e9);
  }
  return test;
}

OpCase with_rows(OpCase test, int64_t rows) {
  test.label += fmt::format(" P={}", rows);
  test.params["num_rows"] = rows;
  return test;
}

OpCase with_ids(OpCase test, const std::string& label, double id) {
  test.label += " " + label;
  HostTensor& ids = test.inputs["topk_idx"];
  for (int64_t i = 0; i < ids.size(); ++i) ids.set_value(i, id);
  return test;
}

/// A token may have an expert twice: two pairs.
OpCase repeated(OpCase test) {
  test.label += " repeated experts";
  HostTensor& ids = test.inputs["topk_idx"];
  for (int64_t i = 0; i < ids.size(); ++i) ids.set_value(i, static_cast<double>(i * i % 3));
  return test;
}

OpCase wrong(OpCase test, bool is_narrow) {
  test.label += " ids out of range";
  const int64_t kWrong[] = {-2, 9, 1 << 30, is_narrow ? INT32_MIN : INT64_MIN,
                            is_narrow ? 10 : (int64_t{1} << 32) + 3};
  for (int64_t i = 0; i < 5; ++i) {
    test.inputs["topk_idx"].set_bits(
        7 * i, static_cast<uint64_t>(kWrong[i]) & (is_narrow ? 0xFFFFFFFFu : ~uint64_t{0}));
  }
  return test;
}

}  // namespace

std::vector<OpCase> moe_plan_cases() {
  std::vector<OpCase> cases;
  for (const bool is_narrow : {false, true}) {
    const OpCase small = plan({40, 6, 9, 16}, is_narrow), large = plan({800, 6, 9, 16}, is_narrow);
    for (const OpCase& test : {small, large}) {
      cases.push_back(test);
      cases.push_back(whole(test));
      for (const int64_t count : {-3, 0, 1, 17, 40, 801}) {
        cases.push_back(padded(whole(test), count));
      }
      for (const int64_t rows : {100000, 150, 17, 1}) cases.push_back(with_rows(whole(test), rows));
      cases.push_back(with_ids(test, "all nowhere", -1));
      cases.push_back(with_ids(whole(test), "all to the last expert", 8));
      cases.push_back(repeated(whole(test)));
      cases.push_back(wrong(whole(test), is_narrow));
    }
  }
  for (const int64_t alignment : {1, 8, 100, 128}) {
    cases.push_back(whole(plan({37, 6, 9, alignment})));
    cases.push_back(whole(plan({517, 4, 257, alignment}, true)));
  }
  cases.push_back(whole(plan({256, 8, 4, 64})));  // 2048 pairs: just one block
  cases.push_back(whole(plan({683, 3, 5, 64})));  // 2049: just more
  cases.push_back(plan({1, 1, 1, 1}));
  cases.push_back(plan({3, 8, 1024, 16}));  // fewer pairs than experts
  cases.push_back(whole(plan({300, 9, 1024, 3})));
  cases.push_back(padded(whole(plan({9000, 8, 40, 128})), 8000));  // chunks on every device
  cases.push_back(plan({0, 6, 9, 16}));
  cases.push_back(with_rows(whole(plan({0, 6, 9, 16})), 33));
  cases.push_back(whole(plan({5, 0, 9, 16})));
  return cases;
}

}  // namespace tessera::test
