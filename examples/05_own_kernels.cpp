// 05_own_kernels: the program `tessera` with a kernel of one's own. There is no main here: that of
// tessera_program knows the kernel by the line under it, like a shipped op.
//
//   example_05_own_kernels check rmsnorm             on the checked executor, with counts; --lines
//   example_05_own_kernels show rmsnorm              its CUDA; --stage ir, layout, ptx, explain, ...
//   example_05_own_kernels bench rmsnorm             on a GPU, beside a copy of as many bytes
//   example_05_own_kernels compile rmsnorm --out rmsnorm.tsb
//   example_05_own_kernels compile rmsnorm --format c --out src      as C, for a program without Tessera
//   example_05_own_kernels run rmsnorm -p eps=1e-6 --in x.safetensors --out y.safetensors
#include <tessera/dsl/builder.h>
#include <tessera/tools/lib/own_kernel.h>

namespace ts = tessera;
using ts::dsl::Axis;
constexpr auto kF32 = ts::DType::f32, kBf16 = ts::DType::bf16;

ts::ir::Kernel rmsnorm(int64_t cols) {
  ts::dsl::Builder k("rmsnorm");
  auto rows = k.dim("rows");
  auto x = k.input("x", kBf16, {rows, cols});
  auto weight = k.input("weight", kBf16, {cols});
  auto y = k.output("y", kBf16, {rows, cols});
  auto eps = k.scalar("eps", kF32);
  auto at = k.launch({rows}, {.threads = 128});  // a row per block

  auto row = k.fragment(kF32, {1, cols}, "row");
  auto square = k.fragment(kF32, {1, cols}, "square");
  auto scale = k.fragment(kF32, {cols}, "scale");
  auto sum = k.fragment(kF32, {1}, "sum");
  k.copy(x.tile({at.x, 0}), row);
  k.copy(weight, scale);
  k.parallel({1, cols}, [&](auto r, auto c) { square(r, c) = row(r, c) * row(r, c); });
  k.reduce_sum(square, sum, Axis(1));
  k.parallel({1, cols}, [&](auto r, auto c) {
    row(r, c) = row(r, c) * rsqrt(sum(r) / cols + eps) * scale(c);
  });
  k.copy(row, y.tile({at.x, 0}));
  return k.finish();
}

static const ts::tools::OwnKernel own(
    "rmsnorm", [] { return rmsnorm(1000); }, "rows=64 eps=1e-6");
