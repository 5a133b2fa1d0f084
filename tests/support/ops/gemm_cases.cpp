// Cases of matrix products: extents at and around the edges of tiles, both layouts of operands, narrow
// strides, NaN and infinities.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A matrix of small multiples of 1/4: products and sums of a few hundred have fewer bits than the
/// tensor cores of any target keep, so their order changes nothing.
HostTensor exact_matrix(DType dtype, Dims shape, Dims strides, uint64_t seed) {
  HostTensor tensor(dtype, shape, strides);
  Random random(seed);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set_value(i, static_cast<double>(random.below(17) - 8) / 4);
  }
  return tensor;
}

/// Strides of a [rows, columns] matrix, with gaps of `padding` elements.
Dims strides_of(int64_t rows, int64_t columns, bool by_column, int64_t padding = 0) {
  if (by_column) return {1, rows + padding};
  return {columns + padding, 1};
}

struct Size {
  int64_t m, n, k;
  bool a_by_column = false, b_by_column = false;
  int64_t a_padding = 0, b_padding = 0;
};

OpCase product(const Size& s, const char* out_dtype = "bf16", bool has_bias = false) {
  OpCase test;
  test.label = fmt::format("M={} N={} K={}{}{}{}{} {}{}", s.m, s.n, s.k,
                           s.a_by_column ? " a by column" : "", s.b_by_column ? " b by column" : "",
                           s.a_padding > 0 ? fmt::format(" a padded by {}", s.a_padding) : "",
                           s.b_padding > 0 ? fmt::format(" b padded by {}", s.b_padding) : "",
                           out_dtype, has_bias ? " bias" : "");
  test.inputs["a"] =
      exact_matrix(DType::bf16, {s.m, s.k}, strides_of(s.m, s.k, s.a_by_column, s.a_padding), 1);
  test.inputs["b"] =
      exact_matrix(DType::bf16, {s.n, s.k}, strides_of(s.n, s.k, s.b_by_column, s.b_padding), 2);
  if (has_bias) test.inputs["bias"] = random_tensor(DType::f32, {s.n}, Values::normal, 3);
  test.params["out_dtype"] = std::string(out_dtype);
  return test;
}

/// Sums that are not exact: the executor rounds differently from the tensor cores. S, the sum of
/// abs(a b), is about 0.64 k here, below k; bf16 keeps 8 bits.
OpCase inexact(Size s, const char* out_dtype) {
  OpCase test = product(s, out_dtype, true);
  test.label += " normal values";
  fill_random(test.inputs["a"], Values::normal, 4);
  fill_random(test.inputs["b"], Values::normal, 5);
  const bool is_bf16 = std::string(out_dtype) == "bf16";
  test.tolerance = Tolerance{is_bf16 ? 0x1p-8 : 0, static_cast<double>(s.k) * 0x1p-20};
  return test;
}

/// Single elements that are not finite, which reach one row, one column, or meet.
OpCase special(Size s, const char* out_dtype) {
  OpCase test = product(s, out_dtype, true);
  test.label += " NaN and infinities";
  HostTensor &a = test.inputs["a"], &b = test.inputs["b"];
  a.set_value(2 * s.k + 1, kNan);
  a.set_value(3 * s.k + s.k - 1, kInfinity);
  a.set_value(5 * s.k, -kInfinity);
  a.set_value(5 * s.k + 1, kInfinity);
  b.set_value(1 * s.k + 2, kNan);
  b.set_value(4 * s.k + s.k - 1, 0);
  b.set_value(6 * s.k + 3, -kInfinity);
  test.inputs["bias"].set_value(7, kInfinity);
  test.inputs["bias"].set_value(8, kNan);
  return test;
}

}  // namespace

std::vector<OpCase> gemm_bf16_cases() {
  std::vector<OpCase> cases;
  for (const char* out_dtype : {"bf16", "f32"}) {
    for (const bool a_by_column : {false, true}) {
      for (const bool b_by_column : {false, true}) {
        // whole vectors, on both sides of a tile and of a step
        cases.push_back(product({72, 136, 88, a_by_column, b_by_column}, out_dtype, b_by_column));
        // no extent or stride is even
        cases.push_back(product({5, 9, 7, a_by_column, b_by_column}, out_dtype, a_by_column));
        // rows of whole vectors in memory, not in the matrix
        cases.push_back(
            product({3, 5, 11, a_by_column, b_by_column, a_by_column ? 5 : 5, b_by_column ? 3 : 5},
                    out_dtype, true));
      }
    }
    for (const int64_t m : {1, 8, 9, 32, 33, 48}) {  // few rows, whole vectors of k
      cases.push_back(product({m, 136, 264, false, m % 2 == 0}, out_dtype, true));
    }
    cases.push_back(product({1, 1, 1}, out_dtype, true));
    cases.push_back(product({2, 3, 0}, out_dtype, true));  // bias alone
    cases.push_back(product({2, 3, 0}, out_dtype));        // zeros
    cases.push_back(product({0, 8, 8}, out_dtype));
    cases.push_back(product({8, 0, 8}, out_dtype, true));
    cases.push_back(inexact({40, 24, 200}, out_dtype));
    cases.push_back(special({16, 24, 40}, out_dtype));
  }
  cases.push_back(product({129, 257, 65}, "bf16", true));          // one beyond the tiles
  cases.push_back(product({130, 264, 64}, "f32", true));           // aligned rows
  cases.push_back(product({256, 128, 128}));                       // whole tiles
  cases.push_back(product({4, 6, 10, false, true}, "f32", true));  // pairs
  cases.push_back(product({12, 20, 28, true, false}));             // fours
  cases.push_back(special({16, 24, 37}, "bf16"));
  return cases;
}

}  // namespace tessera::test
