// 06_rms_norm: y = x / sqrt(mean(x^2) + eps) * weight, by arithmetic on whole tiles.
//
//   example_06_rms_norm                     4 rows of 7168 on the CPU, checked
//   example_06_rms_norm 8192 7168 cuda:0    on a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16;

ts::ir::Kernel rms_norm(int64_t cols) {
  ts::dsl::Builder k("rms_norm");
  auto rows = k.dim("rows");
  auto x = k.input("x", kBf16, {rows, cols});
  auto weight = k.input("weight", kBf16, {cols});
  auto y = k.output("y", kBf16, {rows, cols});
  auto at = k.launch({rows}, {.threads = 256});
  auto row = f32(k.load(x(at.x)));
  auto mean = k.reduce_sum(row * row) / static_cast<float>(cols);
  k.store(row * rsqrt(mean + 0x1p-20f) * f32(k.load(weight)), y(at.x));
  return k.finish();
}

int main(int argc, char** argv) try {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 4;
  const int64_t cols = argc > 2 ? std::atoll(argv[2]) : 7168;
  std::vector<ts::tools::TrialTensor> tensors = {
      {kBf16, {rows, cols}}, {kBf16, {cols}}, {kBf16, {rows, cols}, true}};
  ts::tools::run(rms_norm(cols), tensors, argc > 3 ? argv[3] : "cpu");
  const std::vector<double>&x = tensors[0].values, &weight = tensors[1].values;
  const bool ok =
      compare("y", tensors[2], 0x1.01p-8, rows > 64 ? 997 : 1, [&](int64_t i, double& s) {
        const double* row = &x[static_cast<size_t>(i / cols * cols)];
        double sum = 0;
        for (int64_t c = 0; c < cols; ++c) sum += row[c] * row[c];
        const double want = row[i % cols] / std::sqrt(sum / static_cast<double>(cols) + 0x1p-20) *
                            weight[static_cast<size_t>(i % cols)];
        s = std::fabs(want);  // bf16 keeps 8 bits
        return want;
      });
  return ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
