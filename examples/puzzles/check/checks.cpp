// One check per puzzle, against plain C++ or against the shipped op.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "dsl/base/small_float.h"
#include "examples/puzzles/check/check.h"
#include "examples/puzzles/puzzle.h"
#include "kernels/op.h"
#include "kernels/ops.h"

namespace puzzles {
namespace {

namespace ts = tessera;
constexpr auto kF32 = ts::DType::f32, kBf16 = ts::DType::bf16;

double at(const std::vector<float>& values, int64_t i) {
  return static_cast<double>(values[static_cast<size_t>(i)]);
}

double sum_of(const std::vector<float>& values, int64_t begin, int64_t count, int64_t step = 1) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += at(values, begin + i * step);
  return sum;
}

std::string check_copy() {
  for (const int64_t rows : {1, 6, 8}) {
    std::vector<float> x = numbers(rows * 64), y(x.size());
    run(copy_rows(), {{x.data(), kF32, {rows, 64}}, {y.data(), kF32, {rows, 64}}});
    std::string problem = compare("y", y, 64, [&](int64_t i) { return at(x, i); });
    if (!problem.empty()) return problem;
  }
  return "";
}

std::string check_add() {
  constexpr int64_t kRows = 7;
  std::vector<float> a = numbers(kRows * 64), b(a.rbegin(), a.rend()), y(a.size());
  run(add(), {{a.data(), kF32, {kRows, 64}},
              {b.data(), kF32, {kRows, 64}},
              {y.data(), kF32, {kRows, 64}}});
  return compare("y", y, 64, [&](int64_t i) {
    return static_cast<double>(a[static_cast<size_t>(i)] + b[static_cast<size_t>(i)]);
  });
}

std::string check_largest() {
  constexpr int64_t kRows = 6;
  std::vector<float> x = numbers(kRows * 100), y(kRows);
  for (float& value : x) value -= 5.0f;  // all negative
  run(largest(), {{x.data(), kF32, {kRows, 100}}, {y.data(), kF32, {kRows}}});
  return compare("y", y, 1, [&](int64_t r) {
    return static_cast<double>(*std::max_element(x.begin() + r * 100, x.begin() + r * 100 + 100));
  });
}

std::string check_row_sum() {
  constexpr int64_t kRows = 13;
  std::vector<float> x = numbers(kRows * 256), y(kRows);
  for (float& value : x) value += 5.0f;
  run(row_sum(), {{x.data(), kF32, {kRows, 256}}, {y.data(), kF32, {kRows}}});
  return compare(
      "y", y, 1, [&](int64_t r) { return sum_of(x, r * 256, 256); }, 1e-6);
}

std::string check_softmax() {
  constexpr int64_t kRows = 3, kCols = 512;
  std::vector<float> x = numbers(kRows * kCols), y(x.size());
  for (float& value : x) value += 100.0f;  // exp of it is no f32
  run(softmax(), {{x.data(), kF32, {kRows, kCols}}, {y.data(), kF32, {kRows, kCols}}});
  const auto expected = [&](int64_t i) {
    const int64_t row = i / kCols * kCols;
    double sum = 0;
    for (int64_t c = 0; c < kCols; ++c) sum += std::exp(at(x, row + c) - 100);
    return std::exp(at(x, i) - 100) / sum;
  };
  return compare("y", y, kCols, expected, 1e-5);
}

std::string check_transpose() {
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      const ts::layout::Place place = transpose_layout().place({i, j});
      if (place.thread == i + 8 * (j / 2) && place.slot == j % 2) continue;
      return fmt::format(
          "element ({}, {}) is in thread {} slot {}, expected thread {} slot {}; yours:\n{}", i, j,
          place.thread, place.slot, i + 8 * (j / 2), j % 2, ts::layout::draw(transpose_layout()));
    }
  }
  constexpr int64_t kRows = 19, kCols = 21;
  std::vector<float> x = numbers(kRows * kCols), y(x.size());
  run(transpose(), {{x.data(), kF32, {kRows, kCols}}, {y.data(), kF32, {kCols, kRows}}});
  return compare("y", y, kRows, [&](int64_t i) { return at(x, i % kRows * kCols + i / kRows); });
}

std::string check_cast() {
  constexpr int64_t kRows = 5;
  std::vector<float> x = numbers(kRows * 256), scales(kRows * 2), want_scales(scales.size());
  std::fill(x.begin(), x.begin() + 128, 0.0f);  // a group without a largest magnitude
  std::vector<uint8_t> codes(x.size()), want_codes(x.size());
  const auto views = [&](std::vector<uint8_t>& to, std::vector<float>& sf) {
    return std::array<ts::TensorView, 3>{{{x.data(), kF32, {kRows, 256}},
                                          {to.data(), ts::DType::e4m3, {kRows, 256}},
                                          {sf.data(), kF32, {kRows, 2}}}};
  };
  const auto shipped = views(want_codes, want_scales), yours = views(codes, scales);
  ts::kernels::per_token_cast({.x = shipped[0],
                               .out = shipped[1],
                               .out_sf = shipped[2],
                               .format = ts::DType::e4m3,
                               .num_per_channels = 128},
                              nullptr);
  run(cast_with_scales(), {yours.begin(), yours.end()});
  std::string problem = compare("scales", scales, 2, [&](int64_t i) { return at(want_scales, i); });
  if (!problem.empty()) return problem;
  const std::vector<float> got(codes.begin(), codes.end());
  return compare("codes", got, 256, [&](int64_t i) {
    return static_cast<double>(want_codes[static_cast<size_t>(i)]);
  });
}

std::string check_pipelined() {
  constexpr int64_t kRows = 11, kDepth = 160;
  const ts::ir::Kernel kernel = pipelined_sum();
  if (ts::ir::to_string(kernel).find("pipelined") == std::string::npos) {
    return "the kernel has no pipelined loop";
  }
  std::vector<float> x = numbers(kRows * kDepth), y(kRows * 32);
  for (float& value : x) value += 5.0f;
  run(kernel, {{x.data(), kF32, {kRows, kDepth}}, {y.data(), kF32, {kRows, 32}}});
  return compare(
      "y", y, 32, [&](int64_t i) { return sum_of(x, i / 32 * kDepth + i % 32, kDepth / 32, 32); },
      1e-6);
}

std::string check_matmul() {
  constexpr int64_t kM = 40, kN = 50, kDepth = 24;  // multiples of no tile
  const std::vector<float> a = numbers(kM * kDepth), b = numbers(kDepth * kN);
  std::vector<uint16_t> a_codes, b_codes;
  for (const float value : a) a_codes.push_back(ts::to_bf16(value));
  for (const float value : b) b_codes.push_back(ts::to_bf16(value));
  std::vector<float> c(kM * kN);
  run(matmul(), {{a_codes.data(), kBf16, {kM, kDepth}},
                 {b_codes.data(), kBf16, {kDepth, kN}},
                 {c.data(), kF32, {kM, kN}}});
  double worst = 0;
  for (int64_t i = 0; i < kM * kN; ++i) {
    double want = 0;
    for (int64_t d = 0; d < kDepth; ++d) {
      want += double{ts::from_bf16(a_codes[static_cast<size_t>(i / kN * kDepth + d)])} *
              double{ts::from_bf16(b_codes[static_cast<size_t>(d * kN + i % kN)])};
    }
    worst = std::max(worst, std::fabs(at(c, i) - want));
  }
  return worst < 1e-3 ? "" : fmt::format("the largest error of c is {:.3g}", worst);
}

std::string check_cluster() {
  constexpr int64_t kRows = 3;
  std::vector<float> x = numbers(kRows * 1024), y(kRows);
  for (float& value : x) value += 5.0f;
  run(cluster_sum(), {{x.data(), kF32, {kRows, 1024}}, {y.data(), kF32, {kRows}}});
  return compare(
      "y", y, 1, [&](int64_t r) { return sum_of(x, r * 1024, 1024); }, 1e-6);
}

std::string check_long_row() {
  constexpr int64_t kRows = 3, kCols = 20000;
  std::vector<float> x = numbers(kRows * kCols), y(kRows), alone(1);
  for (float& value : x) value += 5.0f;
  run(long_row_sum(), {{x.data(), kF32, {kRows, kCols}}, {y.data(), kF32, {kRows}}});
  run(long_row_sum(), {{x.data() + 2 * kCols, kF32, {1, kCols}}, {alone.data(), kF32, {1}}});
  std::string problem = compare(
      "y", y, 1, [&](int64_t r) { return sum_of(x, r * kCols, kCols); }, 1e-5);
  if (!problem.empty()) return problem;
  return alone[0] == y[2] ? "" : "a row alone has another sum than among others";
}

std::string check_group_count() {
  constexpr int64_t kSlots = 3000;
  std::vector<int64_t> ids;
  for (const float value : numbers(kSlots))
    ids.push_back(static_cast<int64_t>((value + 4.0f) * 8.125f) - 1);
  std::vector<int32_t> out(64), want(64);
  const ts::TensorView slots = {ids.data(), ts::DType::i64, {kSlots, 1}};
  const auto outputs = ts::kernels::find_op("group_count")
                           .outputs({{"group_idx", slots}}, {{"num_groups", int64_t{64}}});
  std::vector<int32_t> workspace;
  for (const auto& one : outputs) {
    if (one.workspace) workspace.resize(static_cast<size_t>(one.storage_elements));
  }
  const auto words = static_cast<int64_t>(workspace.size());
  ts::kernels::group_count({.group_idx = slots,
                            .out = {want.data(), ts::DType::i32, {64}},
                            .workspace = {workspace.data(), ts::DType::i32, {words}},
                            .num_groups = 64},
                           nullptr);
  run(group_count(), {{ids.data(), ts::DType::i64, {kSlots}}, {out.data(), ts::DType::i32, {64}}});
  const std::vector<float> got(out.begin(), out.end());
  return compare("out", got, 1,
                 [&](int64_t g) { return static_cast<double>(want[static_cast<size_t>(g)]); });
}

}  // namespace

const std::vector<Puzzle>& all() {
  static const std::vector<Puzzle> puzzles = {
      {"01_copy", check_copy},
      {"02_add", check_add},
      {"03_ragged_edge", check_largest},
      {"04_row_sum", check_row_sum},
      {"05_softmax", check_softmax},
      {"06_transpose", check_transpose},
      {"07_cast_with_scales", check_cast},
      {"08_pipelined_copies", check_pipelined},
      {"09_small_matmul", check_matmul},
      {"10_cluster", check_cluster},
      {"11_long_row", check_long_row},
      {"12_group_count", check_group_count},
  };
  return puzzles;
}

}  // namespace puzzles
