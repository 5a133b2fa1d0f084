// Cases of the plans of the KV compressor: both ratios and pools, chunks of every length, pages and slots
// that are not there.

#include <fmt/format.h>

#include <numeric>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

struct Pool {
  int64_t ratio, ring, max_rollback = 0, state_page_size = 0, page_size = 0;
};

const std::vector<Pool> kPools = {{4, 8},           {4, 16, 9},          {4, 8, 1, 16, 16},
                                  {4, 8, 1, 8, 64}, {128, 128, 1, 0, 2}, {128, 256, 8, 256, 64}};

kernels::Params params_of(const Pool& pool) {
  kernels::Params params = {{"ratio", pool.ratio},
                            {"ring", pool.ring},
                            {"max_rollback", pool.max_rollback},
                            {"state_page_size", pool.state_page_size}};
  if (pool.page_size > 0) params["page_size"] = pool.page_size;
  return params;
}

/// Different numbers, some of them negative where `holes` says so.
HostTensor table(Dims shape, Random& random, bool holes) {
  return tensor_by(DType::i32, shape, [&](int64_t i) {
    return holes && random.below(7) == 0 ? -1 - random.below(3) : i * 3 + 1;
  });
}

void add_tables(OpCase& test, const Pool& pool, int64_t batch, int64_t longest, Random& random,
                bool holes) {
  if (pool.state_page_size > 0) {
    test.inputs["state_pages"] = table({batch, longest / pool.state_page_size + 1}, random, holes);
  } else {
    test.inputs["state_slot"] = table({batch}, random, holes);
  }
  if (pool.page_size > 0) {
    const int64_t columns = longest / pool.ratio / pool.page_size + 1;
    test.inputs["page_table"] = table({batch, columns}, random, holes);
  }
}

std::string label_of(const Pool& pool, int64_t batch) {
  return fmt::format("B={} ratio={} ring={} rollback={} page={}", batch, pool.ratio, pool.ring,
                     pool.max_rollback, pool.state_page_size);
}

OpCase plan_case(const Pool& pool, int64_t batch, int64_t longest, uint64_t seed,
                 bool holes = false) {
  Random random(seed);
  OpCase test;
  test.label = label_of(pool, batch);
  std::vector<int64_t> starts, ends = {0};
  for (int64_t b = 0; b < batch; ++b) {
    starts.push_back(random.below(3) == 0 ? 0 : random.below(longest));
    const int64_t most = longest - starts.back();
    ends.push_back(ends.back() + (random.below(5) == 0 ? 0 : random.below(most + 1)));
  }
  test.inputs["start"] =
      tensor_by(DType::i32, {batch}, [&](int64_t b) { return starts[static_cast<size_t>(b)]; });
  test.inputs["row_start"] =
      tensor_by(DType::i32, {batch + 1}, [&](int64_t b) { return ends[static_cast<size_t>(b)]; });
  add_tables(test, pool, batch, longest, random, holes);
  test.params = params_of(pool);
  test.params["num_windows"] = ends.back() / pool.ratio + batch;
  test.params["num_writes"] = ends.back() + 3;
  return test;
}

OpCase decode_case(const Pool& pool, int64_t batch, int64_t longest, uint64_t seed,
                   bool holes = false) {
  Random random(seed);
  OpCase test;
  test.label = label_of(pool, batch);
  test.inputs["positions"] = tensor_by(DType::i32, {batch}, [&](int64_t b) {
    return b % 3 == 0 ? random.below(longest / pool.ratio) * pool.ratio + pool.ratio - 1
                      : random.below(longest + 1) - 1;
  });
  add_tables(test, pool, batch, longest, random, holes);
  test.params = params_of(pool);
  return test;
}

OpCase pitched(OpCase test, const std::string& name) {
  const HostTensor old = test.inputs.at(name);
  HostTensor placed(old.dtype(), old.shape(), Dims{old.shape()[1] + 3, 1});
  for (int64_t i = 0; i < old.size(); ++i) placed.set_bits(i, old.bits(i));
  test.label += " " + name + " apart";
  test.inputs[name] = std::move(placed);
  return test;
}

}  // namespace

std::vector<OpCase> compress_plan_cases() {
  std::vector<OpCase> cases;
  uint64_t seed = 1;
  for (const Pool& pool : kPools) {
    const int64_t longest = pool.ratio * 12;
    for (const int64_t batch : {1, 2, 7, 70}) {
      cases.push_back(plan_case(pool, batch, longest, ++seed));
      cases.push_back(plan_case(pool, batch, longest, ++seed, true));
      cases.back().label += " with holes";
    }
    OpCase narrow = plan_case(pool, 9, longest, ++seed);
    narrow.label += " too few rows";
    narrow.params["num_windows"] = int64_t{5};
    narrow.params["num_writes"] = int64_t{6};
    cases.push_back(narrow);
    narrow.params["num_windows"] = int64_t{0};
    cases.push_back(narrow);
    narrow.params["num_writes"] = int64_t{0};
    cases.push_back(std::move(narrow));
    OpCase short_tables = plan_case(pool, 6, longest, ++seed);
    short_tables.label += " tables of one column";
    for (const char* name : {"state_pages", "page_table"}) {
      const auto found = short_tables.inputs.find(name);
      if (found != short_tables.inputs.end()) {
        found->second = tensor_by(DType::i32, {6, 1}, [](int64_t i) { return i + 2; });
      }
    }
    cases.push_back(std::move(short_tables));
  }
  cases.push_back(plan_case(kPools[0], 1500, 40, ++seed));
  cases.push_back(pitched(plan_case(kPools[2], 5, 90, ++seed), "state_pages"));
  cases.push_back(pitched(plan_case(kPools[2], 5, 90, ++seed), "page_table"));
  OpCase wrong = plan_case(kPools[0], 6, 50, ++seed);
  wrong.label += " requests out of range";
  wrong.inputs["start"] = tensor_of(DType::i32, {6}, {3, -4, 5, 2147483640, 6, 0});
  wrong.inputs["row_start"] = tensor_of(DType::i32, {7}, {0, 9, 20, 14, 30, 41, 41});
  cases.push_back(std::move(wrong));
  return cases;
}

std::vector<OpCase> compress_plan_decode_cases() {
  std::vector<OpCase> cases;
  uint64_t seed = 100;
  for (const Pool& pool : kPools) {
    const int64_t longest = pool.ratio * 40;
    for (const int64_t batch : {1, 33, 300}) {
      cases.push_back(decode_case(pool, batch, longest, ++seed));
      cases.push_back(decode_case(pool, batch, longest, ++seed, true));
      cases.back().label += " with holes";
    }
  }
  cases.push_back(decode_case(kPools[0], 0, 40, ++seed));
  cases.push_back(pitched(decode_case(kPools[2], 5, 90, ++seed), "state_pages"));
  cases.push_back(pitched(decode_case(kPools[2], 5, 90, ++seed), "page_table"));
  OpCase beyond = decode_case(kPools[2], 40, 90, ++seed);
  beyond.label += " positions and pages out of range";
  for (int64_t b = 0; b < 40; b += 4) {
    beyond.inputs["positions"].set_value(b, b % 8 == 0 ? -2 - static_cast<double>(b) : 8191);
  }
  for (const int64_t position : {63, 127}) {  // in a page of the state, in none of the cache
    beyond.inputs["positions"].set_value(position / 64, static_cast<double>(position));
  }
  cases.push_back(std::move(beyond));
  return cases;
}

}  // namespace tessera::test
