// 02_softmax: softmax over the rows of a matrix. One block keeps a row in registers, so that the row
// is read once and written once.
//
//   example_02_softmax                     4 rows of 8192 on the CPU, checked
//   example_02_softmax 8192 8192 cuda:0    on a GPU, checked and timed beside a copy of the same bytes
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "tools/lib/copy_rate.h"
#include "tools/lib/device_tensors.h"
#include "tools/lib/random_tensor.h"

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

/// The largest relative error of one row, against double.
double row_error(const float* x, const float* y, int64_t cols) {
  double top = -INFINITY, sum = 0, worst = 0;
  for (int64_t c = 0; c < cols; ++c) top = std::max(top, double{x[c]});
  for (int64_t c = 0; c < cols; ++c) sum += std::exp(x[c] - top);
  for (int64_t c = 0; c < cols; ++c) {
    const double want = std::exp(x[c] - top) / sum;
    worst = std::max(worst, std::abs(y[c] - want) / want);
  }
  return worst;
}

int main(int argc, char** argv) try {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 4;
  const int64_t cols = argc > 2 ? std::atoll(argv[2]) : 8192;
  const ts::Device device = ts::tools::parse_device(argc > 3 ? argv[3] : "cpu");
  const int64_t bytes = rows * cols * int64_t{sizeof(float)};
  const ts::tools::HostBuffer data = ts::tools::random_tensor(kF32, rows * cols, 1);
  ts::tools::DeviceMemory x(device, bytes), y(device, bytes);
  x.upload(data.bytes());
  const ts::TensorView tensors[] = {{x.data(), kF32, {rows, cols}, device},
                                    {y.data(), kF32, {rows, cols}, device}};
  const ts::kernels::jit::Function function(softmax(cols));
  function(tensors, {}, nullptr);

  std::vector<float> in(static_cast<size_t>(rows * cols)), out(in.size());
  std::memcpy(in.data(), data.data(), static_cast<size_t>(bytes));
  y.download(std::as_writable_bytes(std::span(out)));
  double worst = 0;
  for (int64_t r = 0; r < rows; r += std::max<int64_t>(1, rows / 16)) {
    worst = std::max(worst, row_error(&in[static_cast<size_t>(r * cols)],
                                      &out[static_cast<size_t>(r * cols)], cols));
  }
  fmt::print("{} x {} on {}: largest relative error {:.1e}\n", rows, cols,
             ts::tools::describe(device), worst);
  if (device.is_cuda()) {
    ts::runtime::DeviceTimer timer(device.ordinal);
    ts::tools::CopyRate copy(timer);
    const double us = timer.measure([&] { function(tensors, {}, nullptr); }).us;
    const double rate = 2e-3 * static_cast<double>(bytes) / us;
    fmt::print("{:.1f} us, {:.0f} GB/s, {:.1f} % of a copy\n", us, rate,
               100 * rate / copy.gbs(bytes));
  }
  return worst < 1e-5 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
