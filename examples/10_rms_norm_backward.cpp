// 10_rms_norm_backward: dx and dw of y = x / sqrt(mean(x^2) + eps) * weight. Each block walks its rows and keeps its
// part of dw in registers; after a barrier of the grid the blocks add the parts.
//
//   example_10_rms_norm_backward                         21 rows of 896 by 4 blocks on the CPU, checked
//   example_10_rms_norm_backward 8192 7168 132 cuda:0    a block on each of 132 SMs of a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16;
constexpr auto kF32 = ts::DType::f32;
constexpr int64_t kColumns = 56, kParts = 144;  // of a step of the last sum
using ts::dsl::Value;

ts::ir::Kernel rms_norm_backward(int64_t cols) {
  ts::dsl::Builder k("rms_norm_backward");
  auto rows = k.dim("rows"), blocks = k.dim("blocks");
  auto x = k.input("x", kBf16, {rows, cols}), dy = k.input("dy", kBf16, {rows, cols});
  auto weight = k.input("weight", kBf16, {cols});
  auto dx = k.output("dx", kBf16, {rows, cols});
  auto parts = k.output("parts", kF32, {blocks, cols}), dw = k.output("dw", kF32, {cols});
  auto at = k.launch({blocks}, {.threads = 896});  // 16 bytes of a row per thread at 7168 columns
  auto x_row = k.shared(kBf16, {cols}), dy_row = k.shared(kBf16, {cols});
  auto part = k.fragment(kF32, {cols}, "part"), sum = k.fragment(kF32, {kColumns}, "sum");
  const float n = static_cast<float>(cols);
  auto w = k.load(weight);
  k.fill(part, 0.0f);
  k.pipelined(0, (rows - at.x + blocks - 1) / blocks, 4, [&](Value i) {
    auto row = at.x + i * blocks;
    k.copy(x(row), x_row);
    k.copy(dy(row), dy_row);
    auto v = f32(k.load(x_row)), g = f32(k.load(dy_row));
    auto squares = k.reduce_sum(v * v), products = k.reduce_sum(v * g * f32(w));
    auto r = k.evaluate(rsqrt(squares / n + 0x1p-20f));
    k.store(r * (g * f32(w) - v * (products * r * r / n)), dx(row));
    k.store(part + g * v * r, part);
  });
  k.store(part, parts(at.x));
  k.sync_grid();
  k.persistent({cols / kColumns}, [&](Value column) {
    k.fill(sum, 0.0f);
    k.serial(0, ceil_div(blocks, kParts), [&](Value i) {
      auto tile = k.load(parts.tile({i * kParts, column * kColumns}, {kParts, kColumns}));
      k.store(sum + k.reduce_sum(tile, ts::dsl::Axis(0)), sum);
    });
    k.copy(sum, dw.tile({column * kColumns}));
  });
  return k.finish();
}

int main(int argc, char** argv) try {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 21;
  const int64_t cols = argc > 2 ? std::atoll(argv[2]) : 896;
  const int64_t blocks = argc > 3 ? std::atoll(argv[3]) : 4;
  std::vector<ts::tools::TrialTensor> t = {
      {kBf16, {rows, cols}},       {kBf16, {rows, cols}},        {kBf16, {cols}},
      {kBf16, {rows, cols}, true}, {kF32, {blocks, cols}, true}, {kF32, {cols}, true}};
  ts::tools::run(rms_norm_backward(cols), t, argc > 4 ? argv[4] : "cpu");
  const std::vector<double>&x = t[0].values, &dy = t[1].values, &weight = t[2].values;
  const double n = static_cast<double>(cols);
  std::vector<double> inverse(static_cast<size_t>(rows)), mean(inverse.size());
  for (size_t r = 0; r < inverse.size(); ++r) {
    double squares = 0, products = 0;
    for (size_t c = 0; c < weight.size(); ++c) {
      const size_t i = r * weight.size() + c;
      squares += x[i] * x[i];
      products += x[i] * dy[i] * weight[c];
    }
    inverse[r] = 1 / std::sqrt(squares / n + 0x1p-20);
    mean[r] = products / n * inverse[r] * inverse[r];
  }
  const bool dx_ok = compare("dx", t[3], 0x1.1p-8, rows > 64 ? 97 : 1, [&](int64_t i, double& s) {
    const auto at = static_cast<size_t>(i), r = at / weight.size();
    const double want = inverse[r] * (dy[at] * weight[at % weight.size()] - x[at] * mean[r]);
    s = std::max(std::fabs(want), 1e-3);
    return want;
  });
  const bool dw_ok = compare("dw", t[5], 1e-5, rows > 64 ? 7 : 1, [&](int64_t c, double& s) {
    double want = 0;
    s = 1e-3;
    for (size_t r = 0, at = static_cast<size_t>(c); r < inverse.size(); ++r, at += weight.size()) {
      want += dy[at] * x[at] * inverse[r];
      s += std::fabs(dy[at] * x[at] * inverse[r]);
    }
    return want;
  });
  return dx_ok && dw_ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
