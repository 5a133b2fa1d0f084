// 14_mla_decode: one new token per sequence attends to a cache of latent rows in pages. Its heads share the rows: all
// 576 columns are keys, the first 512 are values too. Blocks split the pages of a sequence; a second kernel combines.
//
//   example_14_mla_decode                  2 sequences of at most 330 tokens on the CPU, checked
//   example_14_mla_decode 64 8192 cuda:0   sequences, longest on a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>
#include <limits>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16;
constexpr auto kF32 = ts::DType::f32;
constexpr auto kI32 = ts::DType::i32;
constexpr int64_t kHeads = 16, kDim = 576, kLatent = 512, kPage = 64, kSplits = 8;
constexpr float kLog2E = 0x1.715476p0f, kLowest = -std::numeric_limits<float>::infinity();
using ts::dsl::Axis, ts::dsl::Value;

/// Softmax over the pages kSplits * i + split of each sequence, and log2 of its sum.
ts::ir::Kernel attend(float scale) {
  ts::dsl::Builder k("mla_decode");
  auto batch = k.dim("batch"), pages = k.dim("pages"), longest = k.dim("longest");
  auto q = k.input("q", kBf16, {batch, kHeads, kDim});
  auto cache = k.input("cache", kBf16, {pages, kPage, kDim});
  auto table = k.input("table", kI32, {batch, longest}),
       lengths = k.input("lengths", kI32, {batch});
  auto parts = k.output("parts", kF32, {batch, kSplits, kHeads, kLatent});
  auto lse = k.output("lse", kF32, {batch, kSplits, kHeads, 1});
  auto at = k.launch({kSplits, batch}, {.threads = 128});
  auto length = k.let("length", lengths(at.y));
  auto q_tile = k.shared(kBf16, {kHeads, kDim}), page = k.shared(kBf16, {kPage, kDim});
  auto p = k.shared(kBf16, {kHeads, kPage});
  auto s = k.fragment(kF32, {kHeads, kPage}, "s"), o = k.fragment(kF32, {kHeads, kLatent}, "o");
  auto top = k.fragment(kF32, {kHeads, 1}, "top"), sum = k.fragment(kF32, {kHeads, 1}, "sum");
  k.copy(q(at.y), q_tile);
  k.fill(o, 0.0f), k.fill(sum, 0.0f), k.fill(top, -1e30f);
  auto turns = (ceil_div(length, kPage) - at.x + (kSplits - 1)) / kSplits;
  k.pipelined(0, turns, {.stages = 2, .in_place = true}, [&](Value i) {
    auto number = at.x + i * kSplits;
    k.copy(cache(table(at.y, number)), page);
    k.fill(s, 0.0f);
    k.gemm(q_tile, page.transposed(), s, {.warp_columns = 4});
    k.parallel({kHeads, kPage}, [&](Value r, Value c) {
      s(r, c) = select(number * kPage + c < length, s(r, c) * (scale * kLog2E), kLowest);
    });
    auto above = k.evaluate(max(top, k.reduce_max(s)));
    auto shrink = k.evaluate(exp2(top - above));
    auto e = k.evaluate(exp2(s - above));
    k.store(sum * shrink + k.reduce_sum(e), sum);
    k.store(o * shrink, o);
    k.store(above, top);
    k.store(e, p);
    k.gemm(p, page.tile({0, 0}, {kPage, kLatent}), o, {.warp_columns = 4});
  });
  k.store(o / max(sum, 1e-30f), parts(at.y, at.x));  // a split may have no pages
  k.store(top + log2(sum), lse(at.y, at.x));
  return k.finish();
}

ts::ir::Kernel combine() {
  ts::dsl::Builder k("mla_combine");
  auto batch = k.dim("batch");
  auto parts = k.input("parts", kF32, {batch, kSplits, kHeads, kLatent});
  auto lse = k.input("lse", kF32, {batch, kSplits, kHeads, 1});
  auto out = k.output("out", kBf16, {batch, kHeads, kLatent});
  auto at = k.launch({kHeads, batch}, {.threads = 128});
  auto share = k.load(lse(at.y, k.all, at.x));
  auto weight = k.evaluate(exp2(share - k.reduce_max(share, Axis(0))));
  auto whole = k.reduce_sum(weight, Axis(0));
  auto mixed = k.reduce_sum(k.load(parts(at.y, k.all, at.x)) * weight, Axis(0));
  k.store(mixed / whole, out(at.y, at.x));
  return k.finish();
}

int main(int argc, char** argv) try {
  const int64_t batch = argc > 1 ? std::atoll(argv[1]) : 2;
  const int64_t longest = argc > 2 ? std::atoll(argv[2]) : 330;
  const std::string device = argc > 3 ? argv[3] : "cpu";
  const int64_t per = (longest + kPage - 1) / kPage, pages = batch * per;
  std::vector<double> table,
      lengths;  // pages in an order of their own, the last sequence the longest
  for (int64_t i = 0; i < pages; ++i) table.push_back(static_cast<double>(pages - 1 - i));
  for (int64_t b = 1; b <= batch; ++b) lengths.push_back(static_cast<double>(longest * b / batch));
  std::vector<ts::tools::TrialTensor> t = {{kBf16, {batch, kHeads, kDim}},
                                           {kBf16, {pages, kPage, kDim}},
                                           {kI32, {batch, per}, false, table},
                                           {kI32, {batch}, false, lengths},
                                           {kF32, {batch, kSplits, kHeads, kLatent}, true},
                                           {kF32, {batch, kSplits, kHeads, 1}, true}};
  const double scale = 1 / std::sqrt(static_cast<double>(kDim));
  ts::tools::run(attend(static_cast<float>(scale)), t, device);
  std::vector<ts::tools::TrialTensor> last = {t[4], t[5], {kBf16, {batch, kHeads, kLatent}, true}};
  last[0].is_output = last[1].is_output = false;
  ts::tools::run(combine(), last, device);
  // one element of each head, and a page of them
  const bool ok = compare("out", last[2], 0x1p-6, batch > 8 ? 30011 : 131, [&](int64_t i, double&) {
    const int64_t head = i / kLatent, b = head / kHeads;
    const double* query = &t[0].values[static_cast<size_t>(head * kDim)];
    double top = -1e30, sum = 0, mixed = 0;
    for (int64_t l = 0; l < static_cast<int64_t>(lengths[static_cast<size_t>(b)]); ++l) {
      const double page = table[static_cast<size_t>(b * per + l / kPage)];
      const double* row = &t[1].values[static_cast<size_t>(
          (static_cast<int64_t>(page) * kPage + l % kPage) * kDim)];
      double score = 0;
      for (int64_t d = 0; d < kDim; ++d) score += query[d] * row[d] * scale;
      const double above = std::max(top, score), shrink = std::exp(top - above);
      const double p = std::exp(score - above);
      sum = sum * shrink + p;
      mixed = mixed * shrink + p * row[i % kLatent];
      top = above;
    }
    return mixed / sum;
  });
  return ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
