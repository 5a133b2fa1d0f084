#include "tests/support/elementary_functions.h"

#include <cmath>
#include <limits>

namespace tessera::test {

const std::vector<ElementaryFunction>& elementary_functions() {
  static const std::vector<ElementaryFunction> functions = {
      {"exp", dsl::exp, std::exp, -87, 88, 2},
      {"exp2", dsl::exp2, std::exp2, -126, 127, 2},
      {"log", dsl::log, std::log, 0x1p-126, 1e30, 1},
      {"log near 1", dsl::log, std::log, 0.5, 2, 1},
      {"log2", dsl::log2, std::log2, 0x1p-126, 1e30, 1},
      {"log2 near 1", dsl::log2, std::log2, 0.5, 2, 1},
      {"log1p", dsl::log1p, std::log1p, -0.99, 50, 1},
      {"sin", dsl::sin, std::sin, -1000, 1000, 2},
      {"sin, far", dsl::sin, std::sin, 1e6, 1e30, 2},
      {"cos", dsl::cos, std::cos, -1000, 1000, 2},
      {"tanh", dsl::tanh, std::tanh, -10, 10, 2},
      {"erf", dsl::erf, std::erf, -5, 5, 2},
      {"exp2_approx", dsl::exp2_approx, std::exp2, -125, 127, 2},
      {"exp_approx", dsl::exp_approx, std::exp, -8, 8, 2, 0, 0x1p-20},
      {"log2_approx", dsl::log2_approx, std::log2, 0x1p-125, 1e30, 1, 0x1p-22, 0x1p-22},
      {"log2_approx near 1", dsl::log2_approx, std::log2, 0.5, 2, 0, 0x1p-22},
      {"log_approx near 1", dsl::log_approx, std::log, 0.5, 2, 0, 0x1p-22},
      {"sin_approx", dsl::sin_approx, std::sin, -3.14159, 3.14159, 0, 0x1p-20},
      {"cos_approx", dsl::cos_approx, std::cos, -3.14159, 3.14159, 0, 0x1p-20},
      {"tanh_approx", dsl::tanh_approx, std::tanh, -10, 10, 0, 0, 0x1p-10},
  };
  return functions;
}

double error_of(const ElementaryFunction& f, float x, float got) {
  const long double want = f.exact(static_cast<long double>(x));
  const auto rounded = std::fabs(static_cast<float>(want));
  const double ulp = std::nextafter(rounded, std::numeric_limits<float>::infinity()) - rounded;
  const double allowed =
      (f.ulps + 0.5) * ulp + f.absolute + f.relative * static_cast<double>(std::fabs(want));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want)) / allowed;
}

ir::Kernel elementary_kernel(int64_t n) {
  constexpr int64_t kThreads = 256;
  const auto& functions = elementary_functions();
  const auto rows = static_cast<int64_t>(functions.size());
  dsl::Builder k("elementary");
  auto x = k.input("x", DType::f32, {rows, n});
  auto y = k.output("y", DType::f32, {rows, n});
  auto at = k.launch({dsl::ceil_div(n, kThreads)}, {.threads = kThreads});
  auto column = k.let("column", at.x * kThreads + k.thread());
  k.if_(column < n, [&] {
    for (int64_t row = 0; row < rows; ++row) {
      y(row, column) = functions[static_cast<size_t>(row)].function(x(row, column));
    }
  });
  return k.finish();
}

std::vector<float> elementary_inputs(int64_t n) {
  std::vector<float> inputs;
  for (const ElementaryFunction& f : elementary_functions()) {
    for (int64_t i = 0; i < n; ++i) {
      const double part = static_cast<double>(i) / static_cast<double>(n - 1);
      // over many powers of two: as many in each
      const double x = f.low > 0 && f.high / f.low > 1e6 ? f.low * std::pow(f.high / f.low, part)
                                                         : f.low + (f.high - f.low) * part;
      inputs.push_back(static_cast<float>(x));
    }
  }
  return inputs;
}

}  // namespace tessera::test
