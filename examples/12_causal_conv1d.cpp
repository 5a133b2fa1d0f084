// 12_causal_conv1d: y[l, c] = silu(bias[c] + sum of weight[t, c] x[l - 3 + t, c]), one filter of four taps per channel.
//
//   example_12_causal_conv1d                      2 x 37 x 128 on the CPU, checked
//   example_12_causal_conv1d 4 4096 4096 cuda:0   batch, length, channels on a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16;
constexpr int64_t kTaps = 4, kLength = 64, kChannels = 64;  // of a block

ts::ir::Kernel causal_conv1d() {
  ts::dsl::Builder k("causal_conv1d");
  auto batch = k.dim("batch"), length = k.dim("length");
  auto channels = k.dim("channels", {.multiple_of = kChannels});
  auto x = k.input("x", kBf16, {batch, length, channels});
  auto weight = k.input("weight", kBf16, {kTaps, channels});
  auto bias = k.input("bias", kBf16, {channels});
  auto y = k.output("y", kBf16, {batch, length, channels});
  auto at = k.launch({channels / kChannels, ceil_div(length, kLength), batch}, {.threads = 128});
  auto row = at.y * kLength, column = at.x * kChannels;
  auto tile = k.shared(kBf16, {kTaps - 1 + kLength, kChannels});
  k.copy(x(at.z).tile({row - (kTaps - 1), column}), tile);
  auto sum = f32(k.load(bias.tile({column}, {kChannels})));
  for (int64_t t = 0; t < kTaps; ++t) {
    auto tap = k.load(weight.tile({t, column}, {1, kChannels}));
    sum = fma(f32(tile.tile({t, 0}, {kLength, kChannels})), f32(tap), sum);
  }
  k.store(silu(sum), y(at.z).tile({row, column}, {kLength, kChannels}));
  return k.finish();
}

int main(int argc, char** argv) try {
  const int64_t batch = argc > 1 ? std::atoll(argv[1]) : 2;
  const int64_t length = argc > 2 ? std::atoll(argv[2]) : 37;
  const int64_t channels = argc > 3 ? std::atoll(argv[3]) : 128;
  std::vector<ts::tools::TrialTensor> t = {{kBf16, {batch, length, channels}},
                                           {kBf16, {kTaps, channels}},
                                           {kBf16, {channels}},
                                           {kBf16, {batch, length, channels}, true}};
  ts::tools::run(causal_conv1d(), t, argc > 4 ? argv[4] : "cpu");
  const int64_t step = batch * length > 256 ? 997 : 1;
  const bool ok = compare("y", t[3], 0x1.01p-8, step, [&](int64_t i, double& scale) {
    const int64_t c = i % channels, l = i / channels % length;
    double sum = t[2].values[static_cast<size_t>(c)];
    for (int64_t tap = std::max<int64_t>(0, kTaps - 1 - l); tap < kTaps; ++tap) {
      sum += t[1].values[static_cast<size_t>(tap * channels + c)] *
             t[0].values[static_cast<size_t>(i + (tap - kTaps + 1) * channels)];
    }
    const double want = sum / (1 + std::exp(-sum));
    scale = std::max(std::fabs(want), 1e-3);
    return want;
  });
  return ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
