// 03_gemm: c = a * b^T in bf16 by the tensor cores, f32 sums: wgmma on sm_90a, else mma.sync.
//
//   example_03_gemm                256 x 256 x 256 on the CPU, checked
//   example_03_gemm 4096 cuda:0    4096 x 4096 x 4096 on a GPU, checked and timed
//   example_03_gemm 4096 cuda:0 wide    the same by larger blocks, of 208 KiB of shared memory
//   example_03_gemm 4096 cuda:0 roles    the same: one warp loads boxes, the copy engine stores them
//   example_03_gemm 256 cpu timeline roles.svg    by roles in one block: when each of its warps does what
#include <tessera/tools/lib/trial.h>

#include <cmath>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16;

/// The tile that a block computes.
struct Shape {
  int rows = 128, columns = 128;  // of c: 16 multiplications per byte read from L2
  int step = 32;                  // along depth
  int stages = 4;                 // buffers of a step
  int threads = 128;
  int blocks_per_sm = 2;  // of 96 KiB of shared memory
};
/// 21 multiplications per byte, for devices with 208 KiB of shared memory per block.
constexpr Shape kWide = {.columns = 256, .stages = 6, .threads = 256, .blocks_per_sm = 1};

/// c [m, n] = a [m, depth] * b [n, depth] transposed; m, n and depth multiples of those of the shape.
ts::ir::Kernel gemm(const Shape& s) {
  ts::dsl::Builder k("gemm_bf16");
  auto m = k.dim("m", {.multiple_of = s.rows}), n = k.dim("n", {.multiple_of = s.columns});
  auto depth = k.dim("depth", {.multiple_of = s.step});
  auto a = k.input("a", kBf16, {m, depth}), b = k.input("b", kBf16, {n, depth});
  auto c = k.output("c", kBf16, {m, n});
  auto at = k.launch({n / s.columns, m / s.rows},
                     {.threads = s.threads, .min_blocks_per_sm = s.blocks_per_sm});
  auto row = at.y * s.rows, column = at.x * s.columns;
  auto a_tile = k.shared(kBf16, {s.rows, s.step}, "a_tile");
  auto b_tile = k.shared(kBf16, {s.columns, s.step}, "b_tile");
  auto sum = k.fragment(ts::DType::f32, {s.rows, s.columns}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, depth / s.step, s.stages, [&](auto step) {
    k.copy(a.tile({row, step * s.step}), a_tile);
    k.copy(b.tile({column, step * s.step}), b_tile);
    k.gemm(a_tile, b_tile.transposed(), sum);
  });
  // through shared memory, so that whole rows of 256 bytes are written
  auto c_tile = k.shared(kBf16, {s.rows, s.columns}, "c_tile");
  k.copy(sum, c_tile);
  k.copy(c_tile, c.tile({row, column}));
  return k.finish();
}

/// The same for n a multiple of 256 and depth of 64: one warp loads tiles, eight multiply them. Each block
/// computes tile after tile, and loads the next one while it writes the last. k.mark names the parts for a timeline and
/// is nothing otherwise.
ts::ir::Kernel gemm_by_roles(bool in_one_block = false) {
  constexpr int kRows = 128, kColumns = 256, kStep = 64;
  const ts::dsl::CopyOptions kByTensor = {.engine = ts::ir::Engine::tensor};
  ts::dsl::Builder k("gemm_bf16_by_roles");
  auto m = k.dim("m", {.multiple_of = kRows}), n = k.dim("n", {.multiple_of = kColumns});
  auto depth = k.dim("depth", {.multiple_of = kStep});
  auto a = k.input("a", kBf16, {m, depth}), b = k.input("b", kBf16, {n, depth});
  auto c = k.output("c", kBf16, {m, n});
  ts::dsl::Arg blocks = 1;
  if (!in_one_block) blocks = k.device_blocks();
  k.launch({blocks}, {.threads = 256});
  auto a_tile = k.shared(kBf16, {kRows, kStep}, "a_tile");
  auto b_tile = k.shared(kBf16, {kColumns, kStep}, "b_tile");
  auto c_tile = k.shared(kBf16, {kRows, kColumns}, "c_tile");
  auto sum = k.fragment(ts::DType::f32, {kRows, kColumns}, "sum");
  auto tile = [&](auto row, auto column) {
    k.fill(sum, 0.0f);
    k.pipelined(0, depth / kStep, {.stages = 3, .producer = true}, [&](auto s) {  // 48 KiB each
      k.mark("load", [&] {
        k.copy(a.tile({row * kRows, s * kStep}), a_tile, kByTensor);
        k.copy(b.tile({column * kColumns, s * kStep}), b_tile, kByTensor);
      });
      k.mark("multiply", [&] { k.gemm(a_tile, b_tile.transposed(), sum); });
    });
    k.mark("store", [&] {
      k.copy(sum, c_tile);
      k.copy(c_tile, c.tile({row * kRows, column * kColumns}), kByTensor);
    });
  };
  k.persistent({m / kRows, n / kColumns}, tile, {.group = 8});
  return k.finish();
}

int main(int argc, char** argv) try {
  const int64_t size = argc > 1 ? std::atoll(argv[1]) : 256;
  const std::string_view form = argc > 3 ? argv[3] : "";
  std::vector<ts::tools::TrialTensor> tensors = {
      {kBf16, {size, size}}, {kBf16, {size, size}}, {kBf16, {size, size}, true}};
  std::optional<ts::kernels::jit::TimelineScope> timeline;
  if (form == "timeline") timeline.emplace();
  ts::tools::run(form == "timeline" ? gemm_by_roles(true)
                 : form == "roles"  ? gemm_by_roles()
                 : form == "wide"   ? gemm(kWide)
                                    : gemm(Shape{}),
                 tensors, argc > 2 ? argv[2] : "cpu", 2 * std::pow(static_cast<double>(size), 3));
  if (timeline && !timeline->timelines().empty()) {
    const ts::kernels::jit::Timeline& first = timeline->timelines().front();
    fmt::print("{}", ts::tools::timeline_text(first));
    if (argc > 4 && !(std::ofstream(argv[4]) << ts::tools::timeline_picture(first)).flush()) {
      throw std::runtime_error("cannot write the picture");
    }
  }
  const std::vector<double>&a = tensors[0].values, &b = tensors[1].values;
  const bool ok = compare("c", tensors[2], 1, 7 * size + 13, [&](int64_t i, double& allowed) {
    const auto row = static_cast<size_t>(i / size * size),
               column = static_cast<size_t>(i % size * size);
    double want = 0, scale = 0;
    for (size_t l = 0; l < static_cast<size_t>(size); ++l) {
      const double product = a[row + l] * b[column + l];
      want += product;
      scale += std::fabs(product);
    }
    allowed = std::fabs(want) * 0x1p-8 + scale * 0x1p-20;  // bf16 keeps 8 bits
    return want;
  });
  return ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
