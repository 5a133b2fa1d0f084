// 13_radix_topk: the indices of the largest values of each row, in ascending order; ties go to the smaller index.
// Each pass counts one digit of 8 bits. A row stops as soon as all values that share its digits are wanted.
//
//   example_13_radix_topk                           5 x 3000 on the CPU, 40 of a row, checked
//   example_13_radix_topk 512 65536 512 cuda:0      rows, length, kept on a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <exception>
#include <numeric>

namespace ts = tessera;
constexpr auto kF32 = ts::DType::f32, kI32 = ts::DType::i32, kU32 = ts::DType::u32;
constexpr int64_t kThreads = 256;  // as many as a digit has values
using ts::dsl::Value;

ts::ir::Kernel radix_topk(int64_t kept) {
  ts::dsl::Builder k("radix_topk");
  auto rows = k.dim("rows"), length = k.dim("length");
  auto x = k.input("x", kF32, {rows, length});
  auto chosen = k.output("chosen", kI32, {rows, kept});
  auto passes = k.output("passes", kI32, {rows});
  auto at = k.launch({rows}, {.threads = kThreads});
  auto t = k.let("t", k.thread()), chunks = k.let("chunks", ceil_div(length, kThreads));
  auto counts = k.shared(kI32, {kThreads}, "counts"), sums = k.shared(kI32, {kThreads}, "sums");
  auto found = k.shared(kI32, {3}, "found");  // digit, values above it, values that have it
  auto wanted = k.var(kI32, kept, "wanted");
  auto prefix = k.var(kU32, 0, "prefix"), mask = k.var(kU32, 0, "mask");
  // Unsigned integers in the order of the floats.
  const auto key_of = [&](const Value& i) {
    auto bits = k.let("bits", reinterpret(kU32, x(at.x, i)));
    return k.let("key", select(bits >= 0x80000000u, bits ^ 0xFFFFFFFFu, bits | 0x80000000u));
  };
  k.loop([&](Value pass) {
    auto shift = k.let("shift", u32(24 - pass * 8));
    counts(t) = 0;
    k.serial(0, chunks, [&](Value c) {
      auto i = k.let("i", c * kThreads + t);
      k.if_(i < length, [&] {
        auto key = key_of(i), part = k.let("part", key & mask);
        k.if_(part == prefix, [&] { k.atomic_add(counts(i32((key >> shift) & 255u)), 1); });
      });
    });
    k.scan_sum(counts, sums, ts::dsl::Axis(0));
    Value here = counts(t), rest = wanted, all = sums(kThreads - 1);
    auto above = k.let("above", all - sums(t));
    k.if_(above < rest && rest <= above + here, [&] {
      found(0) = t;
      found(1) = above;
      found(2) = here;
    });
    prefix = prefix | (u32(found(0)) << shift);
    mask = mask | (ts::dsl::u32(255) << shift);
    wanted -= found(1);
    Value left = wanted;
    passes(at.x) = pass + 1;
    k.break_if(left == found(2) || pass == 3);
  });
  auto ties = k.var(kI32, 0, "ties"), written = k.var(kI32, 0, "written");
  k.serial(0, chunks, [&](Value c) {
    auto i = k.let("i", c * kThreads + t);
    auto part = k.let("part", key_of(i) & mask);
    Value edge = prefix, rest = wanted;
    auto is_tie = k.let("is_tie", i < length && part == edge);
    counts(t) = select(is_tie, 1, 0);
    k.scan_sum(counts, sums, ts::dsl::Axis(0));
    auto rank = k.let("rank", ties + sums(t));
    ties += sums(kThreads - 1);
    auto is_chosen = k.let("is_chosen", i < length && (part > edge || (is_tie && rank <= rest)));
    counts(t) = select(is_chosen, 1, 0);
    k.scan_sum(counts, sums, ts::dsl::Axis(0));
    k.if_(is_chosen, [&] { chosen(at.x, written + sums(t) - 1) = i; });
    written += sums(kThreads - 1);
  });
  return k.finish();
}

int main(int argc, char** argv) try {
  const auto extent = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const int64_t rows = extent(1, 5), length = extent(2, 3000), kept = extent(3, 40);
  std::vector<ts::tools::TrialTensor> t = {
      {kF32, {rows, length}}, {kI32, {rows, kept}, true}, {kI32, {rows}, true}};
  ts::tools::run(radix_topk(kept), t, argc > 4 ? argv[4] : "cpu");
  std::vector<double> want_chosen, want_passes;
  for (int64_t row = 0; row < rows; ++row) {
    const double* values = &t[0].values[static_cast<size_t>(row * length)];
    std::vector<int64_t> order(static_cast<size_t>(length));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return values[a] > values[b]; });
    const auto key = [&](int64_t i) {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(values[i]));
      return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
    };
    const uint32_t last = key(order[static_cast<size_t>(kept - 1)]);
    int pass = 1;
    for (; pass < 4; ++pass) {
      const int shift = 32 - 8 * pass;
      const auto shares = [&](int64_t i) { return key(i) >> shift >= last >> shift; };
      if (std::count_if(order.begin(), order.end(), shares) == kept) break;
    }
    want_passes.push_back(pass);
    std::sort(order.begin(), order.begin() + kept);
    want_chosen.insert(want_chosen.end(), order.begin(), order.begin() + kept);
  }
  const bool chosen = compare("chosen", t[1], 0, 1, [&](int64_t i, double&) {
    return want_chosen[static_cast<size_t>(i)];
  });
  const bool passes = compare("passes", t[2], 0, 1, [&](int64_t i, double&) {
    return want_passes[static_cast<size_t>(i)];
  });
  return chosen && passes ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
