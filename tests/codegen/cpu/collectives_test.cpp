// Warp collectives against the definition of the instructions.

#include <algorithm>
#include <bit>

#include "tests/codegen/cpu/thread_kernel.h"
#include "tests/support/catch.h"

namespace tessera::codegen::cpu {
namespace {

using ir::CollectiveKind;

/// Runs one collective over 64 threads on values[thread] and an operand; the result of each thread.
template <class T, class Result>
std::vector<Result> run_warp(CollectiveKind kind, DType type, DType result_type,
                             std::vector<T> values, Expr operand = {}, int width = 32) {
  ThreadKernel k(64);
  const ArrayRef x = k.tensor("x", type, {integer(64)}, true);
  const ArrayRef out = k.tensor("out", result_type, {integer(64)});
  const Expr value = k.load(x, {k.thread()});
  const auto args = operand ? std::vector<Expr>{value, operand} : std::vector<Expr>{value};
  k.store(out, {k.thread()}, k.collective(kind, result_type, args, width));
  std::vector<Result> output(64);
  Options options;
  options.traps = true;
  k.run({argument(values, type), argument(output, result_type)}, options);
  return output;
}

std::vector<int32_t> ramp() {
  std::vector<int32_t> values;
  for (int i = 0; i < 64; ++i) values.push_back(i * i - 300);
  return values;
}

}  // namespace

TEST_CASE("shuffles read the lane that the instruction names", "[cpu][collectives]") {
  const int width = GENERATE(4, 16, 32);
  const int amount = GENERATE(0, 1, 3, 5, 17);
  CAPTURE(width, amount);
  const auto values = ramp();
  const auto run = [&](CollectiveKind kind) {
    return run_warp<int32_t, int32_t>(kind, DType::i32, DType::i32, values, integer(amount), width);
  };
  const auto index = run(CollectiveKind::shuffle), exchange = run(CollectiveKind::shuffle_xor);
  const auto up = run(CollectiveKind::shuffle_up), down = run(CollectiveKind::shuffle_down);
  for (int t = 0; t < 64; ++t) {
    const int lane = t % 32, first = t - lane, segment = lane / width * width;
    const auto value = [&](int source) { return values[static_cast<size_t>(first + source)]; };
    const auto at = static_cast<size_t>(t);
    CHECK(index[at] == value(segment + amount % width));
    CHECK(up[at] == value(lane - amount < segment ? lane : lane - amount));
    CHECK(down[at] == value(lane + amount >= segment + width ? lane : lane + amount));
    CHECK(exchange[at] == value((lane ^ amount) >= segment + width ? lane : lane ^ amount));
  }
}

TEST_CASE("shuffles move elements of 1, 2 and 8 bytes", "[cpu][collectives]") {
  std::vector<uint8_t> bytes;
  std::vector<uint16_t> halves;
  std::vector<int64_t> words;
  for (int i = 0; i < 64; ++i) {
    bytes.push_back(static_cast<uint8_t>(i + 100));
    halves.push_back(static_cast<uint16_t>(i * 900));
    words.push_back((int64_t{i} << 40) + i);
  }
  const auto kind = CollectiveKind::shuffle_xor;
  const auto b = run_warp<uint8_t, uint8_t>(kind, DType::e4m3, DType::e4m3, bytes, integer(1));
  const auto h = run_warp<uint16_t, uint16_t>(kind, DType::bf16, DType::bf16, halves, integer(1));
  const auto w = run_warp<int64_t, int64_t>(kind, DType::i64, DType::i64, words, integer(1));
  for (size_t t = 0; t < 64; ++t) {
    CHECK(b[t] == bytes[t ^ 1]);
    CHECK(h[t] == halves[t ^ 1]);
    CHECK(w[t] == words[t ^ 1]);
  }
}

TEST_CASE("reductions give every lane the result of its warp", "[cpu][collectives]") {
  const auto values = ramp();
  const auto run = [&](CollectiveKind kind) {
    return run_warp<int32_t, int32_t>(kind, DType::i32, DType::i32, values);
  };
  const auto sum = run(CollectiveKind::reduce_add), low = run(CollectiveKind::reduce_min);
  const auto high = run(CollectiveKind::reduce_max), all = run(CollectiveKind::reduce_and);
  const auto any = run(CollectiveKind::reduce_or);
  for (size_t t = 0; t < 64; ++t) {
    const auto first = values.begin() + (t < 32 ? 0 : 32), last = first + 32;
    int32_t want_sum = 0, want_and = -1, want_or = 0;
    for (auto v = first; v != last; ++v) {
      want_sum += *v;
      want_and &= *v;
      want_or |= *v;
    }
    CHECK(sum[t] == want_sum);
    CHECK(low[t] == *std::min_element(first, last));
    CHECK(high[t] == *std::max_element(first, last));
    CHECK(all[t] == want_and);
    CHECK(any[t] == want_or);
  }
  std::vector<uint32_t> large(64, 1);
  large[7] = 0x80000000u;
  CHECK(run_warp<uint32_t, uint32_t>(CollectiveKind::reduce_max, DType::u32, DType::u32,
                                     large)[0] == 0x80000000u);
  large[8] = 0x80000000u;
  CHECK(run_warp<uint32_t, uint32_t>(CollectiveKind::reduce_add, DType::u32, DType::u32,
                                     large)[31] == 30);
}

TEST_CASE("votes and ballots", "[cpu][collectives]") {
  std::vector<uint8_t> flags(64, 0);
  flags[3] = flags[31] = 1;
  std::fill(flags.begin() + 32, flags.end(), uint8_t{1});
  const auto any =
      run_warp<uint8_t, uint8_t>(CollectiveKind::vote_any, DType::boolean, DType::boolean, flags);
  const auto all =
      run_warp<uint8_t, uint8_t>(CollectiveKind::vote_all, DType::boolean, DType::boolean, flags);
  const auto ballot =
      run_warp<uint8_t, uint32_t>(CollectiveKind::ballot, DType::boolean, DType::u32, flags);
  for (size_t t = 0; t < 64; ++t) {
    CHECK(any[t] == 1);
    CHECK(all[t] == (t < 32 ? 0 : 1));
    CHECK(ballot[t] == (t < 32 ? 0x80000008u : 0xFFFFFFFFu));
  }
  flags[3] = flags[31] = 0;
  CHECK(run_warp<uint8_t, uint8_t>(CollectiveKind::vote_any, DType::boolean, DType::boolean,
                                   flags)[5] == 0);
}

TEST_CASE("match_any finds the lanes with an equal value", "[cpu][collectives]") {
  std::vector<int64_t> values;
  for (int t = 0; t < 64; ++t) values.push_back(int64_t{t % 3} << 33);
  const auto mask =
      run_warp<int64_t, uint32_t>(CollectiveKind::match_any, DType::i64, DType::u32, values);
  for (int t = 0; t < 64; ++t) {
    uint32_t want = 0;
    for (int other = t / 32 * 32; other < t / 32 * 32 + 32; ++other) {
      if (other % 3 == t % 3) want |= 1u << (other % 32);
    }
    CHECK(mask[static_cast<size_t>(t)] == want);
  }
}

TEST_CASE("one warp of a block may communicate alone", "[cpu][collectives]") {
  ThreadKernel k(96);
  const ArrayRef out = k.tensor("out", DType::i32, {integer(96)});
  const auto second = ir::binary(ir::Op::eq, k.thread() / integer(32), integer(1));
  k.branch(second, [&] {
    const Expr sum = k.collective(CollectiveKind::reduce_add, DType::i32, {k.thread()});
    k.store(out, {k.thread()}, sum);
  });
  std::vector<int32_t> output(96, -1);
  Options options;
  options.traps = true;
  k.run({argument(output, DType::i32)}, options);
  for (size_t t = 0; t < 96; ++t) CHECK(output[t] == (t / 32 == 1 ? 32 * 47 + 16 : -1));
}

}  // namespace tessera::codegen::cpu
