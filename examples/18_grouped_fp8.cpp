// 18_grouped_fp8: c = a * b[group]^T in e4m3, for groups of rows that a tensor on the device delimits, as of experts.
// A scale belongs to 1 x 128 elements of a and to 128 x 128 of b; sums are scaled and added in f32 every 128 of depth.
//
//   example_18_grouped_fp8                              5 groups of 265 rows on the CPU, checked
//   example_18_grouped_fp8 32 16384 4096 7168 cuda:0    groups, rows, columns, depth on a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>

namespace ts = tessera;
constexpr auto kE4m3 = ts::DType::e4m3, kBf16 = ts::DType::bf16;
constexpr auto kF32 = ts::DType::f32, kI32 = ts::DType::i32;
constexpr int64_t kM = 64, kN = 128, kDepth = 128;  // of a block and a step
constexpr int64_t kMostGroups = 1024;
using ts::dsl::Value;

/// offsets[g] .. offsets[g + 1] are the rows of group g; they cover all rows.
ts::ir::Kernel grouped_fp8() {
  ts::dsl::Builder k("grouped_fp8");
  auto rows = k.dim("rows"), groups = k.dim("groups");
  auto n = k.dim("n", {.multiple_of = kN}), depth = k.dim("depth", {.multiple_of = kDepth});
  auto a = k.input("a", kE4m3, {rows, depth});
  auto a_scales = k.input("a_scales", kF32, {depth / kDepth, rows});
  auto b = k.input("b", kE4m3, {groups, n, depth});
  auto b_scales = k.input("b_scales", kF32, {groups, n / kN, depth / kDepth});
  auto offsets = k.input("offsets", kI32, {groups + 1});
  auto c = k.output("c", kBf16, {rows, n / kN, kN});
  // Group g has the tiles from offsets[g] / kM + g on: enough for its rows, wherever they begin.
  auto at = k.launch({n / kN, rows / kM + groups}, {.threads = 128});
  Value group = k.let("first_group", 0);
  for (int64_t step = kMostGroups / 2; step > 0; step /= 2) {
    auto next = k.let("next", group + step);
    auto first = k.let("first_tile", offsets(next) / kM + next);
    group = k.let("group", select(next < groups && first <= at.y, next, group));
  }
  auto begin = k.let("begin", offsets(group)), end = k.let("end", offsets(group + 1));
  auto row = k.let("row", begin + (at.y - begin / kM - group) * kM);
  k.return_if(row >= end);
  auto a_tile = k.shared(kE4m3, {kM, kDepth}, "a_tile");
  auto b_tile = k.shared(kE4m3, {kN, kDepth}, "b_tile");
  auto scale = k.shared(kF32, {kM, 1}, "scale"), c_tile = k.shared(kBf16, {kM, kN}, "c_tile");
  auto part = k.fragment(kF32, {kM, kN}, "part"), sum = k.fragment(kF32, {kM, kN}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, depth / kDepth, 4, [&](Value s) {
    k.copy(a.tile({row, s * kDepth}), a_tile);
    k.copy(b(group).tile({at.x * kN, s * kDepth}), b_tile);
    k.copy(a_scales(s).tile({row}), scale);
    k.fill(part, 0.0f);
    k.gemm(a_tile, b_tile.transposed(), part, {.promote = 0});
    auto b_scale = k.let("b_scale", b_scales(group, at.x, s));
    k.store(fma(part, scale * b_scale, sum), sum);
  });
  k.copy(sum, c_tile);
  k.copy(c_tile, c.rows(kM, [&](Value r) {
    return std::vector<Value>{select(row + r < end, row + r, -1), at.x};  // -1: not written
  }));
  return k.finish();
}

struct Shape {
  int64_t n, depth;
  std::vector<double> offsets;

  int64_t groups() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t rows() const { return static_cast<int64_t>(offsets.back()); }
};

/// Groups that grow, one of four empty.
std::vector<double> offsets_of(int64_t groups, int64_t rows) {
  std::vector<double> offsets;
  for (int64_t g = 0; g <= groups; ++g) {
    const int64_t place = g % 4 == 2 && g < groups ? g - 1 : g;
    offsets.push_back(static_cast<double>(place * place * rows / (groups * groups)));
  }
  return offsets;
}

bool check(const Shape& s, const std::string& device) {
  const int64_t rows = s.rows(), steps = s.depth / kDepth;
  std::vector<ts::tools::TrialTensor> t = {{kE4m3, {rows, s.depth}},
                                           {kF32, {steps, rows}},
                                           {kE4m3, {s.groups(), s.n, s.depth}},
                                           {kF32, {s.groups(), s.n / kN, steps}},
                                           {kI32, {s.groups() + 1}, false, s.offsets},
                                           {kBf16, {rows, s.n / kN, kN}, true}};
  ts::tools::run(grouped_fp8(), t, device, 2.0 * static_cast<double>(rows * s.n * s.depth));
  const auto value = [&](size_t tensor, int64_t i) {
    return t[tensor].values[static_cast<size_t>(i)];
  };
  const int64_t step = rows * s.n * s.depth > 1 << 26 ? 100003 : 1;
  // Half an ulp of bf16, and 2^-12 of the sum of the products without signs: what tensor cores keep.
  return compare("c", t[5], 0x1p-8, step, [&](int64_t i, double& scale) {
    const int64_t row = i / s.n, column = i % s.n;
    int64_t group = 0;
    while (value(4, group + 1) <= static_cast<double>(row)) ++group;
    double sum = 0, size = 0;
    for (int64_t l = 0; l < s.depth; ++l) {
      const int64_t d = l / kDepth;
      const double product =
          value(1, d * rows + row) * value(3, (group * (s.n / kN) + column / kN) * steps + d) *
          value(0, row * s.depth + l) * value(2, (group * s.n + column) * s.depth + l);
      sum += product;
      size += std::fabs(product);
    }
    scale = std::fabs(sum) + size / 16;
    return sum;
  });
}

int main(int argc, char** argv) try {
  if (argc == 1) return check({256, 384, {0, 70, 70, 134, 135, 265}}, "cpu") ? 0 : 1;
  const auto extent = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const auto offsets = offsets_of(extent(1, 5), extent(2, 265));
  return check({extent(3, 256), extent(4, 384), offsets}, argc > 5 ? argv[5] : "cpu") ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
