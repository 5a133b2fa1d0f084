// Cases of get_fused_mapping: one block and several, few experts and many, ids out of range,
// capacities that are too large, too small and none.

#include <fmt/format.h>

#include "tests/support/ops/expert_mapping.h"
#include "tests/support/ops/op_cases.h"

namespace tessera::test {
namespace {

OpCase mapping_case(int64_t tokens, int64_t topk, int64_t experts, int64_t alignment) {
  OpCase test;
  test.label = fmt::format("T={} K={} E={} A={}", tokens, topk, experts, alignment);
  test.inputs["topk_idx"] = random_topk_idx(tokens, topk, experts, 21);
  test.params = {{"num_experts", experts}, {"alignment", alignment}};
  return test;
}

OpCase with_capacity(OpCase test, int64_t capacity, bool no_sync = true) {
  test.label += fmt::format(" P={}{}", capacity, no_sync ? " no sync" : "");
  test.params["num_expanded_tokens"] = capacity;
  test.params["force_no_sync"] = no_sync;
  return test;
}

OpCase with_ids(OpCase test, const std::string& label, int64_t id) {
  test.label += " " + label;
  HostTensor& ids = test.inputs["topk_idx"];
  for (int64_t i = 0; i < ids.size(); ++i) ids.set_bits(i, static_cast<uint64_t>(id));
  return test;
}

}  // namespace

std::vector<OpCase> get_fused_mapping_cases() {
  std::vector<OpCase> cases;
  for (const int64_t alignment : {1, 16, 100, 128}) {
    cases.push_back(mapping_case(37, 6, 9, alignment));     // one block
    cases.push_back(mapping_case(700, 8, 9, alignment));    // three chunks
    cases.push_back(mapping_case(517, 4, 257, alignment));  // chunks of little more than 1024
  }
  cases.push_back(mapping_case(256, 8, 4, 64));  // 2048 pairs: just one block
  cases.push_back(mapping_case(683, 3, 5, 64));  // 2049: just two chunks
  cases.push_back(mapping_case(1, 1, 1, 1));
  cases.push_back(mapping_case(3, 8, 1024, 16));
  cases.push_back(mapping_case(300, 9, 1024, 3));
  cases.push_back(mapping_case(9000, 8, 40, 128));  // more chunks than lanes
  const OpCase small = mapping_case(40, 6, 9, 16), large = mapping_case(800, 6, 9, 16);
  for (const OpCase& test : {small, large}) {
    for (const int64_t capacity : {100000, 150, 17, 1, 0}) {
      cases.push_back(with_capacity(test, capacity));
    }
    cases.push_back(with_capacity(test, 6000, false));
    cases.push_back(with_ids(test, "all nowhere", -1));
    cases.push_back(with_ids(test, "all to the last expert", 8));
    OpCase wrong = test;
    wrong.label += " ids out of range";
    const int64_t kWrong[] = {-2, 9, int64_t{1} << 32, (int64_t{1} << 32) + 3, INT64_MIN};
    for (int64_t i = 0; i < 5; ++i) {
      wrong.inputs["topk_idx"].set_bits(7 * i, static_cast<uint64_t>(kWrong[i]));
    }
    cases.push_back(std::move(wrong));
  }
  cases.push_back(mapping_case(0, 6, 9, 16));
  cases.push_back(with_capacity(mapping_case(0, 6, 9, 16), 33));
  return cases;
}

}  // namespace tessera::test
