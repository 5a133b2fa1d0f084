// 01_hello_tile: divides every row of a matrix by its sum. CPU tensors run on the executor; hand the
// same kernel CUDA tensors and it is compiled for that GPU.
#include <tessera/dsl/builder.h>
#include <tessera/kernels/jit/jit.h>

#include <cstdio>
#include <vector>

namespace ts = tessera;
constexpr auto kF32 = ts::DType::f32;

ts::ir::Kernel normalize_rows(int64_t cols) {
  ts::dsl::Builder k("normalize_rows");
  auto rows = k.dim("rows");  // any number of rows, one kernel
  auto x = k.input("x", kF32, {rows, cols});
  auto y = k.output("y", kF32, {rows, cols});
  auto at = k.launch({ceil_div(rows, 4)}, {.threads = 128});  // 4 rows per block

  auto tile = k.fragment(kF32, {4, cols}, "tile");  // in registers, spread over the threads
  auto sum = k.fragment(kF32, {4}, "sum");
  k.copy(x.tile({at.x * 4, 0}), tile);  // rows beyond the end read as 0
  k.reduce_sum(tile, sum, ts::dsl::Axis(1));
  k.parallel({4, cols}, [&](auto r, auto c) { tile(r, c) = tile(r, c) / sum(r); });
  k.copy(tile, y.tile({at.x * 4, 0}));  // and are not written
  return k.finish();
}

int main() {
  const int64_t rows = 6, cols = 96;
  std::vector<float> x(rows * cols, 0.5f), y(rows * cols);
  const ts::TensorView tensors[] = {{x.data(), kF32, {rows, cols}}, {y.data(), kF32, {rows, cols}}};
  // Lowered once, here, and compiled on its first call on each GPU: keep it for all calls.
  const ts::kernels::jit::Function normalize(normalize_rows(cols));
  normalize(tensors, {}, nullptr);
  for (const float value : y) {
    if (value != 1.0f / 96.0f) return 1;
  }
  std::printf("every element is %g\n", static_cast<double>(y[0]));
}
