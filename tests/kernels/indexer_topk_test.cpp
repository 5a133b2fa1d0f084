// The indexer's choices on the executor: keys, blocks of keys, keys of chosen blocks; the ops against their references
// and against their parts, the mistakes that the cases catch, bad calls.

#include "tests/reference/indexer.h"
#include "tests/support/ops/indexer_cases.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using reference::BlocksMistake;

namespace {

void check(const std::string& op) {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products(op, cases_of(op));
}

/// One case with values of every kind, which no two targets need to agree about.
OpCase any_values(OpCase test) {
  fill_random(test.inputs["q"], Values::normal, 31);
  if (test.inputs.contains("k")) fill_random(test.inputs["k"], Values::normal, 32);
  return test;
}

}  // namespace

TEST_CASE("mqa_topk equals its reference on the executor (A44)", "[serving][mqa_topk]") {
  check("mqa_topk");
}

TEST_CASE("paged_mqa_topk equals its reference on the executor (A44)",
          "[serving][paged_mqa_topk]") {
  check("paged_mqa_topk");
}

TEST_CASE("candidate_blocks equals its reference on the executor (A46)",
          "[serving][candidate_blocks]") {
  check("candidate_blocks");
}

TEST_CASE("mqa_topk_blocks equals its reference on the executor", "[serving][mqa_topk_blocks]") {
  check("mqa_topk_blocks");
}

TEST_CASE("paged_mqa_topk_blocks equals its reference on the executor",
          "[serving][paged_mqa_topk_blocks]") {
  check("paged_mqa_topk_blocks");
}

TEST_CASE("sparse_mqa_logits equals its reference on the executor",
          "[serving][sparse_mqa_logits]") {
  check("sparse_mqa_logits");
}

TEST_CASE("sparse_mqa_topk equals its reference on the executor (A47)",
          "[serving][sparse_mqa_topk]") {
  check("sparse_mqa_topk");
}

TEST_CASE("keys of chosen blocks have the bits of mqa_logits", "[serving][sparse_mqa_logits]") {
  OpCase test = any_values(exact_logits("", {2, 16, 128, 200}));
  const HostTensor all = op_runner("mqa_logits", Device::cpu())(test.inputs, {}).at("logits");
  test.inputs["blocks"] = tensor_of(DType::i32, {2, 4}, {3, 20, 0, 24, 9, -1, 7, 11});
  const HostTensor some =
      op_runner("sparse_mqa_logits", Device::cpu())(test.inputs, {}).at("logits");
  int64_t wrong = 0, seen = 0;
  for (int64_t i = 0; i < some.size(); ++i) {
    const auto block = static_cast<int64_t>(test.inputs["blocks"].value(i / 8));
    if (block < 0) continue;
    ++seen;
    wrong += some.bits(i) != all.bits(i / 32 * 200 + block * 8 + i % 8) ? 1 : 0;
  }
  CHECK(seen == 56);
  CHECK(wrong == 0);
}

TEST_CASE("mqa_topk chooses what topk_select chooses from mqa_logits (A44)",
          "[serving][mqa_topk]") {
  const OpCase test = any_values(exact_logits("", {3, 16, 64, 300}));
  const HostTensor logits = op_runner("mqa_logits", Device::cpu())(test.inputs, {}).at("logits");
  const HostTensors select = {{"scores", logits},
                              {"starts", test.inputs.at("k_start")},
                              {"lengths", test.inputs.at("k_end")}};
  for (const char* order : {"index", "value"}) {
    const Params params = {
        {"topk", int64_t{40}}, {"order", std::string(order)}, {"save_values", true}};
    const HostTensors want = op_runner("topk_select", Device::cpu())(select, params);
    const HostTensors got = op_runner("mqa_topk", Device::cpu())(test.inputs, params);
    for (const auto& [name, tensor] : want) {
      CAPTURE(order, name);
      CHECK(got.at(name).raw() == tensor.raw());
    }
  }
}

TEST_CASE("the cases of the indexer's choices catch mistakes (A80)", "[serving][mutants]") {
  using enum BlocksMistake;
  const std::vector<BlocksMistake> of_candidates = {
      none,      no_newest, newest_by_score, by_score, lowest_taken,
      later_tie, half,      length_cut,      all_seen, first_of_block};
  const std::vector<BlocksMistake> of_chosen = {none,      by_score, lowest_taken,
                                                later_tie, half,     twice};
  for (const auto& [op, mistakes] :
       {std::pair("candidate_blocks", of_candidates), std::pair("sparse_mqa_topk", of_chosen)}) {
    std::vector<reference::Runner> mutants;
    for (const BlocksMistake mistake : mistakes) {
      mutants.push_back(reference::mistaken_blocks(op, mistake));
    }
    const std::vector<bool> caught = caught_by(op, cases_of(op), mutants);
    for (size_t i = 0; i < caught.size(); ++i) {
      CAPTURE(op, i);
      CHECK(caught[i] == (mistakes[i] != none));
    }
  }
}

TEST_CASE("the indexer's choices explain wrong arguments", "[serving][errors]") {
  const auto told = [](const char* op, const OpCase& test) -> std::string {
    try {
      op_runner(op, Device::cpu())(test.inputs, test.params);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  const auto says = [](const std::string& text, const std::string& what,
                       const std::string& expected, const std::string& got) {
    CAPTURE(text);
    CHECK(text.find(": " + what + "\n") != std::string::npos);
    CHECK(text.find("\n  expected  " + expected) != std::string::npos);
    CHECK(text.find("\n  got       " + got) != std::string::npos);
  };
  OpCase test;
  test.inputs["scores"] = HostTensor(DType::f32, {2, 40});
  test.inputs["scores"].fill_bytes(std::byte{0});
  test.inputs["lengths"] = tensor_of(DType::i32, {2}, {40, 41});
  says(told("candidate_blocks", test), "argument 'lengths' has a value out of range", "0 .. 40",
       "41 at [1]");
  test.params["block_size"] = int64_t{12};
  says(told("candidate_blocks", test), "parameter 'block_size' has a wrong value",
       "a power of two up to 64", "12");
  test = exact_logits("", {2, 8, 32, 40});
  test.inputs["blocks"] = tensor_of(DType::i32, {2, 3}, {0, 1, 2, 3, -1, 3});
  CHECK(told("sparse_mqa_logits", test) == "no error");
  test.params["topk"] = int64_t{4};
  says(told("sparse_mqa_topk", test), "argument 'blocks' names a block twice", "each block once",
       "3 at [1, 2]");
  test = exact_paged_logits("", {2, 8, 32, 16, {40, 20, 4, 5}});
  test.params["topk"] = int64_t{4}, test.params["out_page_size"] = int64_t{24};
  says(told("paged_mqa_topk", test), "parameter 'out_page_size' has a wrong value",
       "a power of two up to 2^30", "24");
  test.params["out_page_size"] = int64_t{16};
  test.inputs["out_page_table"] = HostTensor(DType::i32, {3, 4});
  says(told("paged_mqa_topk", test),
       "argument 'out_page_table' has rows that do not divide the queries",
       "a divisor of 4 queries", "3");
}
