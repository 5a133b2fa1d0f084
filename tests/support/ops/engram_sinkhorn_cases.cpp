// Cases of the optimizer of Engram tables: rows of one warp to several steps of a block, runs of one row to
// several tiles, rows of zeros, values at the ends of the formats.

#include <fmt/format.h>

#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

OpCase momentum_case(DType grad, DType momentum, int64_t size, Values values, double beta1,
                     bool nesterov) {
  OpCase test;
  test.label = fmt::format("n={} {} {} beta1={}{}", size, name(grad), name(momentum), beta1,
                           nesterov ? "" : " plain");
  test.inputs["grad"] = random_tensor(grad, {size}, values, 91);
  test.inputs["momentum"] = random_tensor(momentum, {size}, values, 92);
  test.params = {{"beta1", beta1}, {"nesterov", nesterov}};
  return test;
}

OpCase matrix_case(int64_t rows, int64_t columns, Values values = Values::normal,
                   double eps = 1e-8) {
  OpCase test;
  test.label = fmt::format("R={} D={} eps={}", rows, columns, eps);
  test.inputs["matrix"] = random_tensor(DType::f32, {rows, columns}, values, 93);
  test.inputs["row_scale"] = random_tensor(DType::f32, {rows}, Values::uniform, 94);
  test.inputs["col_scale"] = random_tensor(DType::f32, {columns}, Values::uniform, 95);
  test.params["eps"] = eps;
  return test;
}

/// Rows of zeros, of subnormal numbers, of squares that overflow, with NaN and infinities.
OpCase extreme_rows(double eps) {
  OpCase test = matrix_case(7, 256, Values::normal, eps);
  test.label += " extreme rows";
  HostTensor& matrix = test.inputs["matrix"];
  for (int64_t d = 0; d < 256; ++d) {
    matrix.set_value(d, 0);
    matrix.set_value(256 + d, 1e-39);
    matrix.set_value(2 * 256 + d, d == 7 ? 3e38 : 0);
  }
  matrix.set_value(3 * 256 + 255, std::numeric_limits<double>::quiet_NaN());
  matrix.set_value(4 * 256, -std::numeric_limits<double>::infinity());
  test.inputs["row_scale"].set_value(5, -2);
  return test;
}

std::vector<OpCase> matrix_cases() {
  std::vector<OpCase> cases;
  for (const int64_t columns : {256, 512, 768, 1024, 1280, 2048, 2304, 4096}) {
    cases.push_back(matrix_case(columns > 1024 ? 3 : 37, columns));
  }
  for (const int64_t rows : {0, 1, 263, 264, 265, 2377}) cases.push_back(matrix_case(rows, 256));
  cases.push_back(matrix_case(1200, 512));
  cases.push_back(matrix_case(40, 256, Values::nasty));
  cases.push_back(matrix_case(9, 512, Values::normal, 0.25));
  cases.push_back(extreme_rows(1e-8));
  cases.push_back(extreme_rows(0));
  return cases;
}

}  // namespace

std::vector<OpCase> engram_sinkhorn_momentum_cases() {
  std::vector<OpCase> cases;
  for (const DType grad : {DType::bf16, DType::f32}) {
    for (const DType momentum : {DType::bf16, DType::f32}) {
      for (const bool nesterov : {false, true}) {
        cases.push_back(momentum_case(grad, momentum, 2304, Values::normal, 0.95, nesterov));
        cases.push_back(momentum_case(grad, momentum, 1024, Values::nasty, 0.9, nesterov));
      }
      for (const double beta1 : {0.0, 1.0, 0.1}) {
        cases.push_back(momentum_case(grad, momentum, 256, Values::normal, beta1, true));
      }
      cases.push_back(momentum_case(grad, momentum, 0, Values::normal, 0.95, true));
    }
  }
  return cases;
}

std::vector<OpCase> engram_sinkhorn_step_cases() {
  return matrix_cases();
}

std::vector<OpCase> engram_sinkhorn_finalize_cases() {
  std::vector<OpCase> cases = matrix_cases();
  for (size_t i = 0; i < cases.size(); ++i) cases[i].params["alpha"] = i % 3 == 0 ? 0.2 : 1.0;
  cases.push_back(cases[1]);
  cases.back().params["alpha"] = -3.0;
  cases.back().label += " alpha=-3";
  return cases;
}

}  // namespace tessera::test
