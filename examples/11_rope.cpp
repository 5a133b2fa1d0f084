// 11_rope: rotates the pairs (x[i], x[i + dim / 2]) of each head by the angle of its token, given as cosine and sine.
//
//   example_11_rope                       9 tokens of 8 heads of 128 on the CPU, checked
//   example_11_rope 8192 64 128 cuda:0    on a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16;
constexpr auto kF32 = ts::DType::f32;
constexpr int64_t kHeads = 8, kTokens = 4;  // of a block

ts::ir::Kernel rope(int64_t dim) {
  const int64_t half = dim / 2;
  ts::dsl::Builder k("rope");
  auto tokens = k.dim("tokens"), heads = k.dim("heads");
  auto x = k.input("x", kBf16, {tokens, heads, dim});
  auto cosines = k.input("cosines", kF32, {tokens, 1, half});
  auto sines = k.input("sines", kF32, {tokens, 1, half});
  auto y = k.output("y", kBf16, {tokens, heads, dim});
  auto at = k.launch({ceil_div(heads, kHeads), ceil_div(tokens, kTokens)}, {.threads = 128});
  auto token = at.y * kTokens, head = at.x * kHeads;
  const std::vector<int64_t> box = {kTokens, kHeads, half};
  auto a = f32(k.load(x.tile({token, head, 0}, box)));
  auto b = f32(k.load(x.tile({token, head, half}, box)));
  auto c = k.load(cosines.tile({token, 0, 0}, {kTokens, 1, half}));
  auto s = k.load(sines.tile({token, 0, 0}, {kTokens, 1, half}));
  k.store(a * c - b * s, y.tile({token, head, 0}, box));
  k.store(b * c + a * s, y.tile({token, head, half}, box));
  return k.finish();
}

int main(int argc, char** argv) try {
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 9;
  const int64_t heads = argc > 2 ? std::atoll(argv[2]) : 8;
  const int64_t dim = argc > 3 ? std::atoll(argv[3]) : 128, half = dim / 2;
  std::vector<ts::tools::TrialTensor> t = {{kBf16, {tokens, heads, dim}},
                                           {kF32, {tokens, 1, half}},
                                           {kF32, {tokens, 1, half}},
                                           {kBf16, {tokens, heads, dim}, true}};
  ts::tools::run(rope(dim), t, argc > 4 ? argv[4] : "cpu");
  const int64_t step = tokens > 64 ? 997 : 1;
  const bool ok = compare("y", t[3], 0x1.01p-8, step, [&](int64_t i, double& scale) {
    const int64_t token = i / dim / heads, column = i % dim;
    const auto angle = static_cast<size_t>(token * half + column % half);
    const bool is_first = column < half;
    const double self = t[0].values[static_cast<size_t>(i)] * t[1].values[angle];
    const double other =
        t[0].values[static_cast<size_t>(is_first ? i + half : i - half)] * t[2].values[angle];
    scale = std::fabs(self) + std::fabs(other);
    return is_first ? self - other : self + other;
  });
  return ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
