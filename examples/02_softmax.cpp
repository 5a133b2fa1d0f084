// 02_softmax: softmax over the rows of a matrix. One block keeps a row in registers, so that the row
// is read once and written once.
//
//   example_02_softmax                     4 rows of 8192 on the CPU, checked
//   example_02_softmax 8192 8192 cuda:0    on a GPU, checked and timed beside a copy of the same bytes
#include <tessera/tools/lib/trial.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <vector>

namespace ts = tessera;
constexpr auto kF32 = ts::DType::f32;

ts::ir::Kernel softmax(int64_t cols) {
  ts::dsl::Builder k("softmax");
  auto rows = k.dim("rows");
  auto x = k.input("x", kF32, {rows, cols});
  auto y = k.output("y", kF32, {rows, cols});
  auto at = k.launch({rows}, {.threads = 512});  // 16 elements per thread at 8192 columns
  auto row = k.load(x(at.x));
  auto e = k.evaluate(exp(row - k.reduce_max(row)));
  k.store(e / k.reduce_sum(e), y(at.x));
  return k.finish();
}

int main(int argc, char** argv) try {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 4;
  const int64_t cols = argc > 2 ? std::atoll(argv[2]) : 8192;
  std::vector<ts::tools::TrialTensor> tensors = {{kF32, {rows, cols}}, {kF32, {rows, cols}, true}};
  ts::tools::run(softmax(cols), tensors, argc > 3 ? argv[3] : "cpu");
  const std::vector<double>& x = tensors[0].values;
  double top = 0, sum = 0;  // of the row
  const int64_t step = rows > 16 ? cols / 64 : 1;
  const bool ok = compare("y", tensors[1], 1e-5, step, [&](int64_t i, double& scale) {
    const double* row = &x[static_cast<size_t>(i / cols * cols)];
    if (i % cols < step) {
      top = *std::max_element(row, row + cols);
      sum = 0;
      for (int64_t c = 0; c < cols; ++c) sum += std::exp(row[c] - top);
    }
    scale = std::exp(row[i % cols] - top) / sum;  // the error is relative
    return scale;
  });
  return ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
