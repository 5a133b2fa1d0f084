// 15_paged_logits: the scores of an indexer over a paged cache, logits[b, l] = sum over heads h of
// weights[b, h] * max(0, q[b, h] . keys[slots[b, l]]). A slot outside of the cache scores 0.
//
//   example_15_paged_logits                         3 x 300 x 64 on the CPU, checked
//   example_15_paged_logits 64 8192 128 cuda:0      batch, length, dim on a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16, kF32 = ts::DType::f32, kI32 = ts::DType::i32;
constexpr int64_t kHeads = 64, kN = 64, kSteps = 4;  // kN keys of a step
constexpr int64_t kSlots = 8;                        // random slots are -8 to 7

ts::ir::Kernel paged_logits(int64_t dim) {
  ts::dsl::Builder k("paged_logits");
  auto batch = k.dim("batch"), length = k.dim("length");
  auto q = k.input("q", kBf16, {batch, kHeads, dim});
  auto keys = k.input("keys", kBf16, {k.dim("cached"), dim});
  auto slots = k.input("slots", kI32, {batch, length});
  auto weights = k.input("weights", kF32, {batch, kHeads});
  auto logits = k.output("logits", kF32, {batch, length});
  auto at = k.launch({ceil_div(length, kN * kSteps), batch}, {.threads = 128});
  auto q_tile = k.shared(kBf16, {kHeads, dim}), k_tile = k.shared(kBf16, {kN, dim});
  auto s = k.fragment(kF32, {kN, kHeads}, "s");
  k.copy(q(at.y), q_tile);
  auto w = k.load(weights.tile({at.y, 0}, {1, kHeads}));
  k.pipelined(0, kSteps, 3, [&](ts::dsl::Value step) {
    auto row = k.let("row", (at.x * kSteps + step) * kN);
    k.copy(keys.rows(slots(at.y).tile({row}, {kN})), k_tile);
    k.fill(s, 0.0f);
    k.gemm(k_tile, q_tile.transposed(), s, {.warp_rows = 4});
    k.store(k.reduce_sum(max(s, 0.0f) * w), logits(at.y).tile({row}, {kN}));
  });
  return k.finish();
}

int main(int argc, char** argv) try {
  const auto extent = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const int64_t batch = extent(1, 3), length = extent(2, 300), dim = extent(3, 64);
  std::vector<ts::tools::TrialTensor> t = {{kBf16, {batch, kHeads, dim}},
                                           {kBf16, {kSlots, dim}},
                                           {kI32, {batch, length}},
                                           {kF32, {batch, kHeads}},
                                           {kF32, {batch, length}, true}};
  ts::tools::run(paged_logits(dim), t, argc > 4 ? argv[4] : "cpu",
                 2.0 * static_cast<double>(batch * length * kHeads * dim));
  const auto value = [&](size_t tensor, int64_t i) {
    return t[tensor].values[static_cast<size_t>(i)];
  };
  const int64_t step = batch * length > 4096 ? 997 : 1;
  const bool ok = compare("logits", t[4], 1e-5, step, [&](int64_t i, double& scale) {
    const int64_t b = i / length;
    const auto slot = static_cast<int64_t>(value(2, i));
    if (slot < 0) return 0.0;
    double logit = 0;
    for (int64_t h = 0; h < kHeads; ++h) {
      double score = 0;
      for (int64_t d = 0; d < dim; ++d) {
        score += value(0, (b * kHeads + h) * dim + d) * value(1, slot * dim + d);
      }
      logit += value(3, b * kHeads + h) * std::fmax(0, score);
      scale += std::fabs(value(3, b * kHeads + h) * score);
    }
    return logit;
  });
  return ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
