// The cache of rows on the host, on the executor: the references, a schedule of calls whose every location
// holds the row of its token, the mistakes that the cases catch, what bad calls are told.

#include "tests/reference/hisparse.h"

#include <algorithm>

#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

const std::string kSwap = "hisparse_swap_in";

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const kernels::UncheckedValues as_on_a_gpu;
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

HostTensors state(int64_t slots, int64_t bytes) {
  return {{"tokens", HostTensor(DType::i32, {2, 1, 3})},
          {"seq_len", HostTensor(DType::i32, {2})},
          {"req", HostTensor(DType::i32, {2})},
          {"hot_slots", HostTensor(DType::i32, {2, slots + 1})},
          {"host_loc", HostTensor(DType::i64, {2, 9})},
          {"hot_tokens", HostTensor(DType::i32, {2, slots + 1})},
          {"lru", HostTensor(DType::i16, {2, slots})},
          {"host", HostTensor(DType::u8, {9, bytes})},
          {"cache", HostTensor(DType::u8, {9, bytes})}};
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

bool same_rows(const HostTensor& a, int64_t row_a, const HostTensor& b, int64_t row_b) {
  const int64_t columns = a.shape()[1];
  for (int64_t i = 0; i < columns; ++i) {
    if (a.bits(row_a * columns + i) != b.bits(row_b * columns + i)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("hisparse_swap_in equals its reference on the executor", "[hisparse_swap_in]") {
  check_cases(kSwap, hisparse_swap_in_cases());
}

TEST_CASE("hisparse_replay equals its reference on the executor", "[hisparse_replay]") {
  check_cases("hisparse_replay", hisparse_replay_cases());
}

TEST_CASE("hisparse_backup equals its reference on the executor", "[hisparse_backup]") {
  check_cases("hisparse_backup", hisparse_backup_cases());
}

TEST_CASE("every location has the row of its token while a request grows, with replay and backup",
          "[hisparse_swap_in][hisparse_replay][hisparse_backup]") {
  constexpr int64_t kSlots = 12, kWanted = 6, kLongest = 60, kBytes = 16;
  Random random(77);
  HostTensor order(DType::i16, {1, kSlots}), held(DType::i32, {1, kSlots + 1});
  HostTensor slots(DType::i32, {1, kSlots + 1}), rows(DType::i64, {1, kLongest});
  for (int64_t i = 0; i < kSlots; ++i) order.set_value(i, static_cast<double>(i));
  for (int64_t i = 0; i <= kSlots; ++i) {
    held.set_value(i, -1);
    slots.set_value(i, static_cast<double>((i * 5 + 3) % (kSlots + 1)));
  }
  for (int64_t i = 0; i < kLongest; ++i)
    rows.set_value(i, static_cast<double>((i * 7 + 2) % kLongest));
  HostTensors in = {{"req", HostTensor(DType::i32, {1})},
                    {"seq_len", HostTensor(DType::i32, {1})},
                    {"tokens", HostTensor(DType::i32, {1, 1, kWanted})},
                    {"hot_slots", slots},
                    {"host_loc", rows},
                    {"hot_tokens", held},
                    {"lru", order},
                    {"host", random_tensor(DType::u8, {kLongest, kBytes}, Values::bits, 1)},
                    {"cache", random_tensor(DType::u8, {kSlots + 1, kBytes}, Values::bits, 2)}};
  const HostTensor truth = random_tensor(DType::u8, {kLongest, kBytes}, Values::bits, 3);
  in["req"].set_value(0, 0);
  HostTensor further = in["cache"];  // of a further layer with the same rows
  for (int64_t length = 1; length <= kLongest; ++length) {
    // The newest row comes from the layer; backup takes it to the host.
    const int64_t newest = std::min(length - 1, kSlots);
    const auto at_device = static_cast<int64_t>(slots.value(newest));
    for (int64_t i = 0; i < kBytes; ++i) {
      const uint64_t byte = truth.bits((length - 1) * kBytes + i);
      in["cache"].set_bits(at_device * kBytes + i, byte);
      further.set_bits(at_device * kBytes + i, byte);
    }
    in["seq_len"].set_value(0, static_cast<double>(length));
    if (length <= kSlots) in["hot_tokens"].set_value(length - 1, static_cast<double>(length - 1));
    HostTensors backup = in;
    for (const char* name : {"tokens", "lru", "hot_tokens"}) backup.erase(name);
    in["host"] = op_runner("hisparse_backup", Device::cpu())(backup, {}).at("host");
    for (int64_t i = 0; i < kWanted; ++i) {
      in["tokens"].set_value(
          i, i < length ? static_cast<double>((random.below(3) * kWanted + i) % length) : -1);
    }
    std::vector<double> seen;
    for (int64_t i = 0; i < kWanted; ++i) {
      const double token = in["tokens"].value(i);
      if (std::find(seen.begin(), seen.end(), token) != seen.end()) in["tokens"].set_value(i, -1);
      seen.push_back(token);
    }
    const HostTensors out = op_runner(kSwap, Device::cpu())(in, {{"save_misses", true}});
    const HostTensors replayed =
        op_runner("hisparse_replay", Device::cpu())({{"miss_list", out.at("miss_list")},
                                                     {"miss_count", out.at("miss_count")},
                                                     {"host", in["host"]},
                                                     {"cache", further}},
                                                    {});
    further = replayed.at("cache");
    for (const char* name : {"hot_tokens", "lru", "cache"}) in[name] = out.at(name);
    for (int64_t i = 0; i < kWanted; ++i) {
      const auto token = static_cast<int64_t>(in["tokens"].value(i));
      const auto location = static_cast<int64_t>(out.at("locations").value(i));
      REQUIRE((location >= 0) == (token >= 0));
      if (token < 0) continue;
      REQUIRE(same_rows(in["cache"], location, truth, token));
      REQUIRE(same_rows(further, location, truth, token));
    }
  }
}

TEST_CASE("the tests of the cache of rows on the host catch every mutant",
          "[hisparse_swap_in][hisparse_replay][hisparse_backup][mutants]") {
  std::vector<OpCase> cases = hisparse_swap_in_cases();
  std::erase_if(cases, [](const OpCase& test) { return test.inputs.at("cache").size() > 40000; });
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(kSwap, cases, misled(kSwap, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught([](HostTensors& in, Params&) {  // the slot used last goes first
    HostTensor& lru = in["lru"];
    const int64_t slots = lru.shape()[1];
    for (int64_t i = 0; i < lru.size(); ++i) {
      if (i % slots >= slots / 2) continue;
      const int64_t other = i / slots * slots + slots - 1 - i % slots;
      const uint64_t bits = lru.bits(i);
      lru.set_bits(i, lru.bits(other));
      lru.set_bits(other, bits);
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // misses in descending order
    HostTensor& tokens = in["tokens"];
    const int64_t entries = tokens.shape()[1] * tokens.shape()[2];
    for (int64_t i = 0; i < tokens.size(); ++i) {
      if (i % entries >= entries / 2) continue;
      const int64_t other = i / entries * entries + entries - 1 - i % entries;
      const uint64_t bits = tokens.bits(i);
      tokens.set_bits(i, tokens.bits(other));
      tokens.set_bits(other, bits);
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // no slot of the newest token
    for (int64_t b = 0; b < in["seq_len"].size(); ++b) {
      in["seq_len"].set_value(b, in["seq_len"].value(b) + 1);
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) { in.erase("num_reqs"); }));
  CHECK(caught([](HostTensors& in, Params&) {  // all tokens are missing
    for (int64_t i = 0; i < in["hot_tokens"].size(); ++i) in["hot_tokens"].set_value(i, -1);
  }));
  for (const char* kept : {"hot_tokens", "lru", "cache"}) {
    CHECK(is_caught(kSwap, cases, spoiled(kSwap, [=](const HostTensors& in, HostTensors& out) {
                      out[kept] = in.at(kept);
                    })));
  }
  CHECK(is_caught(kSwap, cases, spoiled(kSwap, [](const HostTensors&, HostTensors& out) {
                    if (out.contains("miss_list")) out["miss_list"].fill_bytes(std::byte{0xFF});
                  })));
  CHECK(is_caught(kSwap, cases, spoiled(kSwap, [](const HostTensors&, HostTensors& out) {
                    HostTensor& lru = out["lru"];  // the newest hits in another order
                    const int64_t slots = lru.shape()[1];
                    for (int64_t i = slots - 1; i > 0 && i < lru.size(); i += slots) {
                      const uint64_t bits = lru.bits(i);
                      lru.set_bits(i, lru.bits(i - 1));
                      lru.set_bits(i - 1, bits);
                    }
                  })));
  const auto replays = hisparse_replay_cases(), backups = hisparse_backup_cases();
  const auto replay_caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught("hisparse_replay", replays, misled("hisparse_replay", mistake));
  };
  CHECK_FALSE(replay_caught([](HostTensors&, Params&) {}));
  CHECK(replay_caught([](HostTensors& in, Params&) {  // one less
    for (int64_t b = 0; b < in["miss_count"].size(); ++b) {
      in["miss_count"].set_value(b, in["miss_count"].value(b) - 1);
    }
  }));
  CHECK(replay_caught([](HostTensors& in, Params&) {  // the other way round
    HostTensor& list = in["miss_list"];
    for (int64_t i = 0; i < list.size(); i += 2) {
      const uint64_t bits = list.bits(i);
      list.set_bits(i, list.bits(i + 1));
      list.set_bits(i + 1, bits);
    }
  }));
  const auto backup_caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught("hisparse_backup", backups, misled("hisparse_backup", mistake));
  };
  CHECK_FALSE(backup_caught([](HostTensors&, Params&) {}));
  CHECK(backup_caught([](HostTensors& in, Params&) { in.erase("num_reqs"); }));
  CHECK(backup_caught([](HostTensors& in, Params&) {  // the token before
    for (int64_t b = 0; b < in["seq_len"].size(); ++b) {
      in["seq_len"].set_value(b, in["seq_len"].value(b) - 1);
    }
  }));
  CHECK(is_caught("hisparse_backup", backups,
                  spoiled("hisparse_backup", [](const HostTensors& in, HostTensors& out) {
                    out["host"] = in.at("host");
                  })));
}

TEST_CASE("ops of the cache of rows on the host explain wrong arguments",
          "[hisparse_swap_in][errors]") {
  CHECK(outputs_error(kSwap, state(4, 64), {}) == "no error");
  CHECK(outputs_error(kSwap, state(0, 64), {}) ==
        "tessera: hisparse_swap_in: argument 'hot_slots': there must be a slot\n"
        "  expected  1 <= C\n"
        "  got       C = 0 = C+1 = 1 of hot_slots dim 1");
  CHECK(outputs_error(kSwap, state(4, 24), {}) ==
        "tessera: hisparse_swap_in: argument 'host': a row has the wrong number of bytes\n"
        "  expected  bytes % 16 = 0\n"
        "  got       bytes = 24 from host dim 1");
  CHECK(outputs_error(kSwap, with(state(4, 64), "lru", HostTensor(DType::i32, {2, 4})), {}) ==
        "tessera: hisparse_swap_in: argument 'lru' has the wrong dtype\n"
        "  expected  i16\n"
        "  got       i32[2, 4] on cpu");
  CHECK(outputs_error(kSwap, with(state(4, 64), "lru", HostTensor(DType::i16, {2, 5})), {}) ==
        "tessera: hisparse_swap_in: argument 'lru' has the wrong shape\n"
        "  expected  i16[2, 4]   (Q = 2 from hot_slots dim 0; C = 4 = C+1 = 5 of hot_slots dim 1)\n"
        "  got       i16[2, 5] on cpu");
  CHECK(outputs_error(kSwap, with(state(4, 64), "tokens", HostTensor(DType::i32, {2, 3, 2000})),
                      {}) ==
        "tessera: hisparse_swap_in: argument 'tokens': so many tokens are not supported\n"
        "  expected  n * k <= 4096\n"
        "  got       n = 3 from tokens dim 1, k = 2000 from tokens dim 2");
  CHECK(outputs_error(
            kSwap, with(state(4, 64), "cache", HostTensor(DType::u8, {9, 64}, Dims{72, 1})), {}) ==
        "tessera: hisparse_swap_in: argument 'cache' has rows that are not aligned\n"
        "  expected  rows at multiples of 16 bytes\n"
        "  got       u8[9, 64], strides [72, 1]");
}
