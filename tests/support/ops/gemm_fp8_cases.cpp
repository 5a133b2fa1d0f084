// Cases of block-scaled products: extents around tiles and blocks of scales, both layouts of scales, groups
// of rows, padding, NaN.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t blocks_of(int64_t extent) {
  return (extent + 127) / 128;
}

/// Small multiples of 1/4: sums of 128 products have fewer than 14 bits, so every instruction of every
/// target gives the same, and only f32 operations with one result follow.
HostTensor exact_codes(Dims shape, Dims strides, uint64_t seed) {
  HostTensor tensor(DType::e4m3, shape, strides);
  Random random(seed);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set_value(i, static_cast<double>(random.below(17) - 8) / 4);
  }
  return tensor;
}

void fill_scales(HostTensor& scales, uint64_t seed) {
  Random random(seed);
  for (int64_t i = 0; i < scales.size(); ++i) scales.set_value(i, 0.01 + random.uniform());
}

HostTensor scales(Dims shape, Dims strides, uint64_t seed) {
  HostTensor tensor(DType::f32, shape, strides);
  fill_scales(tensor, seed);
  return tensor;
}

struct Size {
  int64_t m, n, k;
  int64_t a_padding = 0, b_padding = 0;
};

HostTensor scales_of_rows(int64_t m, int64_t k, const std::string& layout) {
  const int64_t columns = blocks_of(k);
  if (layout == "row_major") return scales({m, columns}, {columns, 1}, 3);
  const int64_t stored = (m + 3) / 4 * 4;
  HostTensor tensor(DType::f32, {m, columns}, {1, stored}, columns * stored);
  tensor.fill_bytes(std::byte{0});  // the padding
  fill_scales(tensor, 3);
  return tensor;
}

OpCase block(const Size& s, const char* out_dtype = "bf16", const char* layout = "row_major") {
  OpCase test;
  test.label = fmt::format("M={} N={} K={}{} {} {}", s.m, s.n, s.k,
                           s.a_padding + s.b_padding > 0 ? " padded rows" : "", out_dtype, layout);
  test.inputs["a"] = exact_codes({s.m, s.k}, {s.k + s.a_padding, 1}, 1);
  test.inputs["b"] = exact_codes({s.n, s.k}, {s.k + s.b_padding, 1}, 2);
  test.inputs["a_sf"] = scales_of_rows(s.m, s.k, layout);
  test.inputs["b_sf"] = scales({blocks_of(s.n), blocks_of(s.k)}, {blocks_of(s.k), 1}, 4);
  test.params["out_dtype"] = std::string(out_dtype);
  test.params["a_sf_layout"] = std::string(layout);
  return test;
}

/// Operands of any codes: sums that the executor does not cut to 13 bits. Half of the codes of a normal tensor
/// have 3 bits of mantissa; calc_diff of the contract.
OpCase inexact(const Size& s, const char* out_dtype) {
  OpCase test = block(s, out_dtype);
  test.label += " normal values";
  fill_random(test.inputs["a"], Values::normal, 5);
  fill_random(test.inputs["b"], Values::normal, 6);
  test.tolerance = Tolerance{.calc_diff = std::string(out_dtype) == "f32" ? 5e-6 : 3e-5};
  return test;
}

OpCase special(const Size& s, const char* out_dtype) {
  OpCase test = block(s, out_dtype);
  test.label += " NaN";
  test.inputs["a"].set_value(2 * s.k + 1, kNan);
  test.inputs["b"].set_value(1 * s.k + s.k - 1, kNan);
  HostTensor& a_sf = test.inputs["a_sf"];
  a_sf.set_value(3 * blocks_of(s.k), kInfinity);
  a_sf.set_value(4 * blocks_of(s.k), kNan);
  a_sf.set_value(5 * blocks_of(s.k), 0);
  a_sf.set_value(6 * blocks_of(s.k), -1.5);
  return test;
}

OpCase grouped(const Size& s, int64_t groups, const std::vector<double>& of_blocks,
               const char* layout = "row_major", int64_t out_padding = 0) {
  OpCase test;
  test.label = fmt::format("M={} N={} K={} G={} of {} {}", s.m, s.n, s.k, groups,
                           fmt::format("{}", fmt::join(of_blocks, ",")), layout);
  test.inputs["a"] = exact_codes({s.m, s.k}, {s.k + s.a_padding, 1}, 1);
  test.inputs["b"] = exact_codes({groups, s.n, s.k}, {s.n * s.k, s.k, 1}, 2);
  test.inputs["a_sf"] = scales_of_rows(s.m, s.k, layout);
  const Dims of_b = {groups, blocks_of(s.n), blocks_of(s.k)};
  test.inputs["b_sf"] = scales(of_b, row_major_strides(of_b), 4);
  test.inputs["m_indices"] = tensor_by(DType::i32, {s.m}, [&](int64_t row) {
    return of_blocks[static_cast<size_t>(row / 128) % of_blocks.size()];
  });
  test.inputs["out"] =
      random_tensor(DType::bf16, {s.m, s.n}, Dims{s.n + out_padding, 1}, Values::normal, 7);
  test.params["a_sf_layout"] = std::string(layout);
  return test;
}

/// The case with rows first .. end - 1 of every 128 without a group.
OpCase with_padding(OpCase test, int64_t first, int64_t end) {
  test.label += fmt::format(", rows {} to {} of 128 are padding", first, end);
  HostTensor& ids = test.inputs["m_indices"];
  for (int64_t row = 0; row < ids.size(); ++row) {
    if (row % 128 >= first && row % 128 < end) ids.set_value(row, -1);
  }
  return test;
}

/// The groups of `alignment` rows after one another by m_indices, rows of the rest of a group -1.
OpCase by_ids(const Size& s, int64_t groups, int64_t alignment, const std::vector<double>& of_rows,
              const char* layout = "row_major") {
  OpCase test = grouped(s, groups, {0}, layout, 3);
  test.label = fmt::format("M={} N={} K={} G={} alignment {} of rows {} {}", s.m, s.n, s.k, groups,
                           alignment, fmt::format("{}", fmt::join(of_rows, ",")), layout);
  test.inputs["m_indices"] = tensor_of(DType::i32, {s.m}, of_rows);
  test.params["alignment"] = alignment;
  return test;
}

OpCase by_ends(const Size& s, int64_t alignment, const std::vector<double>& psum,
               const char* layout = "row_major") {
  const auto groups = static_cast<int64_t>(psum.size());
  OpCase test = grouped(s, groups, {0}, layout, s.a_padding > 0 ? 5 : 0);
  test.label = fmt::format("M={} N={} K={} alignment {} psum {} {}", s.m, s.n, s.k, alignment,
                           fmt::format("{}", fmt::join(psum, ",")), layout);
  test.inputs.erase("m_indices");
  test.inputs["psum"] = tensor_of(DType::i32, {groups}, psum);
  test.params["alignment"] = alignment;
  return test;
}

/// Rows outside of the groups of psum are NaN, which no other row may see.
OpCase with_poison(OpCase test, const std::vector<int64_t>& rows) {
  test.label += ", padding NaN";
  HostTensor& a = test.inputs["a"];
  const int64_t depth = a.shape()[1], parts = blocks_of(depth);
  for (const int64_t row : rows) {
    for (int64_t k = 0; k < depth; ++k) a.set_value(row * depth + k, kNan);
    for (int64_t p = 0; p < parts; ++p) test.inputs["a_sf"].set_value(row * parts + p, kNan);
  }
  return test;
}

/// Forms whose tiles hold several groups, by ids and by ends.
void add_small_groups(std::vector<OpCase>& cases) {
  cases.push_back(by_ids({150, 40, 144}, 3, 1, {2, 0, 1, -1}));
  cases.push_back(by_ids({150, 40, 144}, 3, 8,
                         {1, 1, 1, 1, 1, -1, -1, -1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1},
                         "col_major_tma"));
  cases.push_back(by_ids({70, 136, 37, 4}, 40, 24, {39, 39, -1, 0}));
  cases.push_back(by_ids({20, 8, 32}, 2, 4, {-1}));       // nothing to do
  cases.push_back(by_ids({20, 8, 0}, 2, 4, {1, -1, 0}));  // zeros
  cases.push_back(by_ids({20, 8, 32}, 2, 4, {1, 2, -2, 0, 2147483647}));
  for (const char* layout : {"row_major", "col_major_tma"}) {
    cases.push_back(by_ends({150, 40, 144}, 8, {3, 3, 24, 139}, layout));
    cases.push_back(by_ends({300, 24, 37, 11}, 128, {100, 100, 290}, layout));
  }
  cases.push_back(by_ends({150, 136, 272}, 1, {1, 2, 66, 66, 150}));
  std::vector<double> many;  // more than a warp looks at at once
  for (int64_t g = 0; g < 70; ++g) many.push_back(static_cast<double>(g / 2 * 4 + g % 2));
  cases.push_back(by_ends({140, 8, 32}, 1, many));
  cases.push_back(with_poison(by_ends({40, 24, 160}, 16, {5, 20, 33}), {5, 15, 20, 31, 33, 39}));
  cases.push_back(by_ends({20, 8, 32}, 4, {0, 0}));  // nothing to do
  cases.push_back(by_ends({20, 8, 32}, 4, {}));      // no group at all
  cases.push_back(by_ends({20, 8, 0}, 4, {3, 18}));  // zeros
  cases.push_back(by_ends({0, 8, 32}, 4, {0, 0}));
  cases.push_back(by_ends({20, 0, 32}, 4, {3, 18}));
  // Ends that do not ascend, lie below 0 or beyond the rows, are cut; the largest alignment.
  cases.push_back(by_ends({40, 8, 32}, 8, {-5, 10, 3, 20, 2147483647, 30}));
  cases.push_back(by_ends({40, 8, 32}, 2147483647, {7, 20, 2147483647}));
}

OpCase masked(const Size& s, const std::vector<double>& counts, bool scales_by_column = false) {
  const auto groups = static_cast<int64_t>(counts.size());
  OpCase test;
  test.label = fmt::format("G={} Mmax={} N={} K={} of {}{}", groups, s.m, s.n, s.k,
                           fmt::format("{}", fmt::join(counts, ",")),
                           scales_by_column ? " scales by column" : "");
  const Dims of_a = {groups, s.m, blocks_of(s.k)}, of_b = {groups, blocks_of(s.n), blocks_of(s.k)};
  test.inputs["a"] = exact_codes({groups, s.m, s.k}, {s.m * s.k, s.k, 1}, 1);
  test.inputs["b"] = exact_codes({groups, s.n, s.k}, {s.n * s.k, s.k, 1}, 2);
  test.inputs["a_sf"] =
      scales(of_a, scales_by_column ? Dims{s.m * of_a[2], 1, s.m} : row_major_strides(of_a), 3);
  test.inputs["b_sf"] = scales(of_b, row_major_strides(of_b), 4);
  test.inputs["masked_m"] = tensor_of(DType::i32, {groups}, counts);
  test.inputs["out"] = random_tensor(DType::bf16, {groups, s.m, s.n}, Values::normal, 7);
  return test;
}

struct KGroups {
  std::vector<double> offsets;
  bool a_by_column = false, b_by_column = false;
};

OpCase k_grouped(const Size& s, const KGroups& groups) {
  const auto count = static_cast<int64_t>(groups.offsets.size()) - 1, parts = blocks_of(s.k);
  OpCase test;
  test.label = fmt::format(
      "M={} N={} K={} to {}{}{}", s.m, s.n, s.k, fmt::format("{}", fmt::join(groups.offsets, ",")),
      groups.a_by_column ? " a by column" : "", groups.b_by_column ? " b by column" : "");
  const Dims by_row = {s.k + s.a_padding, 1};
  test.inputs["a"] =
      exact_codes({s.m, s.k}, groups.a_by_column ? Dims{1, s.m + s.a_padding} : by_row, 1);
  test.inputs["b"] = exact_codes(
      {s.n, s.k}, groups.b_by_column ? Dims{1, s.n + s.b_padding} : Dims{s.k + s.b_padding, 1}, 2);
  test.inputs["a_sf"] = scales({parts, s.m}, {s.m, 1}, 3);
  test.inputs["b_sf"] = scales({parts, s.n}, {s.n, 1}, 4);
  test.inputs["k_offsets"] = tensor_of(DType::i32, {count + 1}, groups.offsets);
  test.inputs["out"] = random_tensor(DType::f32, {count, s.m, s.n}, Values::normal, 7);
  return test;
}

}  // namespace

std::vector<OpCase> gemm_fp8_k_grouped_cases() {
  std::vector<OpCase> cases;
  for (const bool a_by_column : {false, true}) {
    for (const bool b_by_column : {false, true}) {
      const auto add = [&](const Size& s, const std::vector<double>& offsets) {
        cases.push_back(k_grouped(s, {offsets, a_by_column, b_by_column}));
      };
      add({48, 80, 384}, {0, 256, 256, 384});  // an empty group
      add({9, 7, 300}, {128, 256});            // columns before and behind the only group
      add({3, 5, 141, 3, 19}, {0, 128});       // rows of whole vectors in memory alone
    }
  }
  cases.push_back(k_grouped({130, 136, 256}, {{0, 128, 256}}));
  cases.push_back(k_grouped({8, 12, 260}, {{0, 256}}));  // vectors of four
  cases.push_back(k_grouped({8, 12, 128}, {{0, 0}}));
  cases.push_back(k_grouped({8, 12, 0}, {{0, 0}}));
  cases.push_back(k_grouped({8, 12, 128}, {{0}}));  // no group
  cases.push_back(k_grouped({0, 12, 128}, {{0, 128}}));
  cases.push_back(k_grouped({8, 0, 128}, {{0, 128}}));
  // Offsets that are none: the groups that have them are left as they are.
  cases.push_back(k_grouped({8, 12, 256}, {{-128, 128, 64, 128, 256, 384, 0}}));
  return cases;
}

std::vector<OpCase> gemm_fp8_block_cases() {
  std::vector<OpCase> cases;
  for (const char* out_dtype : {"bf16", "f32"}) {
    for (const char* layout : {"row_major", "col_major_tma"}) {
      cases.push_back(block({9, 24, 48}, out_dtype, layout));
      cases.push_back(block({72, 136, 272}, out_dtype, layout));
      cases.push_back(block({5, 9, 7}, out_dtype, layout));
    }
    cases.push_back(block({3, 5, 141, 3, 19}, out_dtype));  // rows of whole vectors in memory alone
    cases.push_back(block({1, 1, 1}, out_dtype));
    cases.push_back(block({2, 3, 0}, out_dtype));
    cases.push_back(block({0, 8, 8}, out_dtype));
    cases.push_back(block({8, 0, 8}, out_dtype));
    cases.push_back(inexact({20, 24, 300}, out_dtype));
    cases.push_back(special({16, 24, 40}, out_dtype));
  }
  cases.push_back(block({129, 129, 129}));         // one beyond tiles and blocks
  cases.push_back(block({130, 264, 128}, "f32"));  // whole steps
  cases.push_back(block({6, 10, 132}, "f32"));     // vectors of four
  cases.push_back(special({16, 24, 37}, "bf16"));
  return cases;
}

std::vector<OpCase> gemm_fp8_grouped_cases() {
  std::vector<OpCase> cases;
  for (const char* layout : {"row_major", "col_major_tma"}) {
    cases.push_back(grouped({300, 40, 144}, 3, {2, 0, 1}, layout));
    cases.push_back(grouped({200, 24, 37}, 2, {-1, 1}, layout));
  }
  cases.push_back(grouped({257, 136, 16}, 2, {1, -1, 0}));
  cases.push_back(grouped({130, 8, 32, 16}, 4, {3, 2}, "row_major", 5));
  cases.push_back(grouped({129, 8, 32}, 1, {-1}));    // nothing to do
  cases.push_back(grouped({129, 8, 32}, 0, {-1}));    // no group at all
  cases.push_back(grouped({140, 8, 0}, 2, {1, -1}));  // zeros
  cases.push_back(grouped({0, 8, 32}, 2, {0}));
  cases.push_back(grouped({8, 0, 32}, 2, {0}));
  cases.push_back(grouped({390, 8, 32}, 2, {2, -7, 1}));  // groups that are none: as -1
  // Rows of padding after, before and between those of a group: they stay, whatever the tile.
  for (const auto& [first, end] : {std::pair{3, 128}, {0, 70}, {20, 64}, {64, 65}, {0, 128}}) {
    cases.push_back(with_padding(grouped({270, 24, 32}, 3, {2, 0, 1}), first, end));
  }
  cases.push_back(with_padding(grouped({140, 8, 0}, 2, {1, 0}), 5, 9));
  OpCase several = grouped({260, 8, 32}, 3, {2, 0, 1});  // two groups in 128 rows: none is written
  several.label += ", two groups in 128 rows";
  several.inputs["m_indices"].set_value(127, 1);
  cases.push_back(several);
  several.label += ", which the alignment allows";
  several.params["alignment"] = int64_t{64};
  cases.push_back(several);
  add_small_groups(cases);
  return cases;
}

std::vector<OpCase> gemm_fp8_masked_cases() {
  std::vector<OpCase> cases;
  cases.push_back(masked({150, 40, 144}, {150, 0, 131}));
  cases.push_back(masked({150, 40, 144}, {7, 128, 64}, true));
  cases.push_back(masked({9, 136, 37}, {3, 9}));
  cases.push_back(masked({9, 8, 37}, {0, 0}));
  cases.push_back(masked({9, 8, 0}, {4, 9}));  // zeros
  cases.push_back(masked({0, 8, 32}, {0, 0}));
  cases.push_back(masked({5, 8, 32}, {}));
  cases.push_back(masked({5, 0, 32}, {5}));
  cases.push_back(masked({20, 8, 32}, {21, -1, 2147483647}));  // counts that are none
  return cases;
}

}  // namespace tessera::test
