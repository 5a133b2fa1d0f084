// Cases of the cache of rows on the host: requests that fit into their slots and that do not, wanted tokens
// that are there, missing, repeated, absent; more of them than slots; state and places out of range.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tests/reference/hisparse.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

struct Size {
  int64_t batch, steps, wanted, slots;
  int64_t longest = 90, bytes = 16;
  std::vector<int64_t> lengths = {};  // else any
};

/// A random order of 0 .. count - 1.
std::vector<int64_t> shuffled(int64_t count, Random& random) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
  return order;
}

/// A state that calls may have left: each request has one, in a random row of the tables.
OpCase swap_case(const Size& s, uint64_t seed, bool save = true) {
  Random random(seed);
  const int64_t states = s.batch + 2, columns = s.slots + 1;
  const int64_t host_rows = s.longest * states, rows = columns * states;
  OpCase test;
  test.label = fmt::format("B={} n={} k={} C={} L={} bytes={} seed={}", s.batch, s.steps, s.wanted,
                           s.slots, s.longest, s.bytes, seed);
  HostTensor tokens(DType::i32, {s.batch, s.steps, s.wanted}), seq_len(DType::i32, {s.batch});
  HostTensor req(DType::i32, {s.batch}), lru(DType::i16, {states, s.slots});
  HostTensor hot_tokens(DType::i32, {states, columns}), hot_slots(DType::i32, {states, columns});
  HostTensor host_loc(DType::i64, {states, s.longest});
  const std::vector<int64_t> of_request = shuffled(states, random),
                             of_slot = shuffled(rows, random);
  const std::vector<int64_t> of_token = shuffled(host_rows, random);
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  for (int64_t i = 0; i < rows; ++i)
    hot_slots.set_value(i, number(of_slot[static_cast<size_t>(i)]));
  for (int64_t i = 0; i < host_rows; ++i) {
    host_loc.set_value(i, number(of_token[static_cast<size_t>(i)]));
  }
  for (int64_t q = 0; q < states; ++q) {
    const std::vector<int64_t> order = shuffled(s.slots, random);
    for (int64_t i = 0; i < s.slots; ++i) {
      lru.set_value(q * s.slots + i, number(order[static_cast<size_t>(i)]));
    }
    for (int64_t i = 0; i < columns; ++i) hot_tokens.set_value(q * columns + i, -1);
  }
  for (int64_t b = 0; b < s.batch; ++b) {
    const int64_t q = of_request[static_cast<size_t>(b)];
    req.set_value(b, number(q));
    const int64_t length = s.lengths.empty() ? random.below(s.longest + 1)
                                             : s.lengths[static_cast<size_t>(b) % s.lengths.size()];
    seq_len.set_value(b, number(length));
    const std::vector<int64_t> held = shuffled(length, random);
    for (int64_t i = 0; i < std::min(s.slots, length); ++i) {
      const int64_t token = length <= s.slots ? i : held[static_cast<size_t>(i)];
      if (token + 1 < length && (length <= s.slots || random.below(8) > 0)) {
        hot_tokens.set_value(q * columns + i, number(token));
      }
    }
    for (int64_t step = 0; step < s.steps; ++step) {
      const std::vector<int64_t> some = shuffled(length, random);
      for (int64_t i = 0; i < s.wanted; ++i) {
        const bool is_none = i >= length || random.below(9) == 0;
        tokens.set_value((b * s.steps + step) * s.wanted + i,
                         is_none ? -1 : number(some[static_cast<size_t>(i)]));
      }
    }
  }
  test.inputs = {{"tokens", tokens},
                 {"seq_len", seq_len},
                 {"req", req},
                 {"hot_slots", hot_slots},
                 {"host_loc", host_loc},
                 {"hot_tokens", hot_tokens},
                 {"lru", lru},
                 {"host", random_tensor(DType::u8, {host_rows, s.bytes}, Values::bits, seed + 1)},
                 {"cache", random_tensor(DType::u8, {rows, s.bytes}, Values::bits, seed + 2)}};
  test.params["save_misses"] = save;
  return test;
}

OpCase labelled(OpCase test, const std::string& text) {
  test.label += " " + text;
  return test;
}

OpCase with_num_reqs(OpCase test, double count) {
  test.inputs["num_reqs"] = tensor_of(DType::i32, {1}, {count});
  return labelled(std::move(test), fmt::format("num_reqs={}", count));
}

/// The case after its own first call: its state is what a call has left.
OpCase called_again(OpCase test, uint64_t seed) {
  const HostTensors out = reference::hisparse_swap_in(test.inputs, false);
  for (const char* name : {"hot_tokens", "lru", "cache"}) test.inputs[name] = out.at(name);
  Random random(seed);
  HostTensor& tokens = test.inputs["tokens"];
  const Dims& shape = tokens.shape();
  for (int64_t b = 0; b < shape[0]; ++b) {
    const auto length = static_cast<int64_t>(test.inputs["seq_len"].value(b));
    for (int64_t step = 0; step < shape[1]; ++step) {
      const std::vector<int64_t> some = shuffled(length, random);
      for (int64_t i = 0; i < std::min(shape[2], length); i += 2) {
        tokens.set_value((b * shape[1] + step) * shape[2] + i,
                         static_cast<double>(some[static_cast<size_t>(i)]));
      }
    }
  }
  return labelled(std::move(test), "again");
}

}  // namespace

std::vector<OpCase> hisparse_swap_in_cases() {
  std::vector<OpCase> cases;
  uint64_t seed = 500;
  for (const int64_t slots : {1, 5, 24, 40, 300}) {
    for (const int64_t wanted : {1, 7, 20}) {
      if (wanted > slots + 1) continue;
      cases.push_back(swap_case({3, 1, wanted, slots, 70}, ++seed));
      cases.push_back(swap_case({2, 3, wanted, 3 * slots, 200}, ++seed, false));
    }
  }
  cases.push_back(swap_case({1, 1, 33, 64, 300, 656, {300}}, ++seed));
  cases.push_back(swap_case({4, 1, 20, 40, 90, 48, {40, 41, 42, 90}}, ++seed));  // around C
  cases.push_back(swap_case({3, 1, 9, 12, 30, 16, {0, 1, 12}}, ++seed));
  cases.push_back(swap_case({2, 1, 200, 1100, 1500, 16, {1500, 1400}}, ++seed));  // several rounds
  cases.push_back(swap_case({2, 1, 16, 16, 60, 528, {60, 17}}, ++seed));
  cases.push_back(swap_case({0, 1, 4, 8}, ++seed));
  cases.push_back(swap_case({2, 1, 0, 8}, ++seed));
  cases.push_back(swap_case({2, 0, 4, 8}, ++seed, false));
  for (int i = 0; i < 3; ++i) {
    const OpCase test = swap_case({3, 1 + i, 9, 30, 120, 32, {120, 100, 31}}, ++seed);
    cases.push_back(called_again(test, ++seed));
  }
  for (const double count : {-1, 0, 2, 9}) {
    cases.push_back(with_num_reqs(swap_case({3, 1, 9, 20}, ++seed), count));
  }
  const OpCase plain = swap_case({4, 2, 9, 20, 90, 32, {90, 70, 50, 20}}, ++seed);
  cases.push_back(strided(plain, "host_loc", {100, 1}));
  cases.push_back(strided(plain, "host", {48, 1}));
  cases.push_back(strided(plain, "cache", {64, 1}));
  // Beyond what a caller may give.
  OpCase many = swap_case({2, 1, 30, 8, 90, 16, {90, 60}}, ++seed);
  cases.push_back(labelled(many, "more tokens than slots"));
  OpCase twice = plain;
  HostTensor& tokens = twice.inputs["tokens"];
  tokens.set_bits(3, tokens.bits(1));
  tokens.set_bits(9, tokens.bits(1));
  cases.push_back(labelled(std::move(twice), "a token twice in its step"));
  OpCase far = plain;
  far.inputs["tokens"].set_value(2, 90);
  far.inputs["tokens"].set_value(4, -7);
  far.inputs["tokens"].set_value(5, 2147483647);
  far.inputs["seq_len"].set_value(1, 91);
  far.inputs["seq_len"].set_value(2, -3);
  cases.push_back(labelled(std::move(far), "tokens and lengths out of range"));
  OpCase states = plain;
  states.inputs["req"].set_value(1, states.inputs["req"].value(0));
  states.inputs["req"].set_value(2, 6);
  states.inputs["req"].set_value(3, -1);
  cases.push_back(labelled(std::move(states), "states out of range"));
  OpCase rows = plain;
  for (int64_t i = 0; i < rows.inputs["hot_slots"].size(); i += 3) {
    rows.inputs["hot_slots"].set_value(i, i % 2 == 0 ? -1 : 2147483647);
  }
  for (int64_t i = 0; i < rows.inputs["host_loc"].size(); i += 4) {
    rows.inputs["host_loc"].set_value(i, i % 8 == 0 ? -1 : 1e15);
  }
  cases.push_back(labelled(std::move(rows), "rows out of range"));
  return cases;
}

std::vector<OpCase> hisparse_replay_cases() {
  std::vector<OpCase> cases;
  for (OpCase& test : hisparse_swap_in_cases()) {
    if (!std::get<bool>(test.params["save_misses"]) || cases.size() >= 14) continue;
    const HostTensors out = reference::hisparse_swap_in(test.inputs, true);
    OpCase replay;
    replay.label = test.label;
    for (const char* name : {"host", "cache"}) replay.inputs[name] = test.inputs.at(name);
    for (const char* name : {"miss_list", "miss_count"}) replay.inputs[name] = out.at(name);
    cases.push_back(std::move(replay));
  }
  OpCase plain;
  plain.label = "pairs out of range";
  plain.inputs = {
      {"miss_list", tensor_of(DType::i64, {2, 3, 2}, {0, 4, 9, 1, -1, 2, 3, 5, 4, 6, 1, 7})},
      {"miss_count", tensor_of(DType::i32, {2}, {3, 2})},
      {"host", random_tensor(DType::u8, {9, 528}, Values::bits, 4)},
      {"cache", random_tensor(DType::u8, {6, 528}, Values::bits, 5)}};
  cases.push_back(plain);
  plain.label = "counts out of range";
  plain.inputs["miss_count"] = tensor_of(DType::i32, {2}, {-2, 7});
  plain.inputs["cache"] = random_tensor(DType::u8, {8, 528}, Values::bits, 5);
  cases.push_back(plain);
  cases.push_back(strided(strided(plain, "host", {544, 1}), "cache", {1024, 1}));
  return cases;
}

std::vector<OpCase> hisparse_backup_cases() {
  std::vector<OpCase> cases;
  for (OpCase& test : hisparse_swap_in_cases()) {
    if (test.inputs.at("cache").size() > 300000) continue;
    for (const char* name : {"tokens", "lru", "hot_tokens"}) test.inputs.erase(name);
    test.params.clear();
    cases.push_back(std::move(test));
  }
  return cases;
}

}  // namespace tessera::test
