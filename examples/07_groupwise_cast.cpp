// 07_groupwise_cast: bf16 to e4m3 with one scale for 128 columns of a row.
//
//   example_07_groupwise_cast                     9 rows of 7168 on the CPU, checked
//   example_07_groupwise_cast 8001 7168 cuda:0    on a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16;
constexpr int64_t kGroup = 128, kRows = 2, kGroups = 28;  // of a block

ts::ir::Kernel groupwise_cast(int64_t cols) {
  ts::dsl::Builder k("groupwise_cast");
  auto rows = k.dim("rows");
  auto x = k.input("x", kBf16, {rows, cols / kGroup, kGroup});
  auto y = k.output("y", ts::DType::e4m3, {rows, cols / kGroup, kGroup});
  auto scales = k.output("scales", ts::DType::f32, {rows, cols / kGroup});
  auto at = k.launch({(cols / kGroup + kGroups - 1) / kGroups, ceil_div(rows, kRows)},
                     {.threads = 256, .min_blocks_per_sm = 4});
  auto row = at.y * kRows, group = at.x * kGroups;
  auto tile = k.load(x.tile({row, group, 0}, {kRows, kGroups, kGroup}));
  auto largest = k.evaluate(max(k.reduce_absmax(tile), 1e-4f));
  k.store(f32(tile) * (448.0f / largest), y.tile({row, group, 0}, {kRows, kGroups, kGroup}));
  k.store(largest / 448.0f, scales.tile({row, group}, {kRows, kGroups}));
  return k.finish();
}

int main(int argc, char** argv) try {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 9;
  const int64_t cols = argc > 2 ? std::atoll(argv[2]) : 7168;
  std::vector<ts::tools::TrialTensor> tensors = {
      {kBf16, {rows, cols / kGroup, kGroup}},
      {ts::DType::e4m3, {rows, cols / kGroup, kGroup}, true},
      {ts::DType::f32, {rows, cols / kGroup}, true}};
  ts::tools::run(groupwise_cast(cols), tensors, argc > 3 ? argv[3] : "cpu");
  const std::vector<double>& x = tensors[0].values;
  const auto largest = [&](int64_t group) {
    double result = 1e-4F;
    for (int64_t c = 0; c < kGroup; ++c) {
      result = std::max(result, std::fabs(x[static_cast<size_t>(group * kGroup + c)]));
    }
    return result;
  };
  const int64_t step = rows > 64 ? 997 : 1;
  const bool scales_ok = compare("scales", tensors[2], 0x1p-23, step,
                                 [&](int64_t i, double& s) { return s = largest(i) / 448; });
  const bool ok = compare("y", tensors[1], 0x1.01p-4, step, [&](int64_t i, double& s) {
    const double want = x[static_cast<size_t>(i)] * 448 / largest(i / kGroup);
    s = std::max(std::fabs(want), 0x1p-6);  // e4m3 keeps 4 bits
    return want;
  });
  return ok && scales_ok ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
