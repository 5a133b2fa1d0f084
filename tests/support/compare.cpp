#include "tests/support/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "dsl/base/error.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {
namespace {

std::string element_name(const Dims& shape, int64_t element) {
  Dims index = shape;
  for (int d = shape.rank - 1; d >= 0; --d) {
    index[d] = element % shape[d];
    element /= shape[d];
  }
  return to_string(index);
}

std::string element_text(DType dtype, uint64_t bits) {
  return fmt::format("{:#0{}x} ({})", bits, 2 + 2 * bytes(dtype), value_of(dtype, bits));
}

// A float code as a signed count of steps from zero: neighbours differ by 1, both zeros are 0.
int64_t steps_from_zero(DType dtype, uint64_t bits) {
  const uint64_t sign = uint64_t{1} << (tessera::bits(dtype) - 1);
  const auto magnitude = static_cast<int64_t>(bits & (sign - 1));
  return (bits & sign) != 0 ? -magnitude : magnitude;
}

std::optional<Comparison> compare_type(const TensorView& got, const TensorView& want) {
  if (got.dtype == want.dtype && got.shape == want.shape) return std::nullopt;
  return Comparison::failed(fmt::format("got {}, want {}", to_string(got), to_string(want)));
}

// Counts the elements that `accepts` refuses and describes the first.
Comparison compare_elements(const TensorView& got, const TensorView& want,
                            const std::function<bool(uint64_t, uint64_t)>& accepts) {
  if (auto type = compare_type(got, want)) return *type;
  int64_t mismatches = 0, first = 0, max_steps = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const uint64_t a = element_bits(got, i);
    const uint64_t b = element_bits(want, i);
    if (accepts(a, b)) continue;
    if (mismatches++ == 0) first = i;
    if (is_float(want.dtype)) {
      max_steps = std::max(
          max_steps, std::abs(steps_from_zero(want.dtype, a) - steps_from_zero(want.dtype, b)));
    }
  }
  if (mismatches == 0) return {};
  std::string report = fmt::format(
      "first mismatch at {}: got {}, want {}; {} of {} differ", element_name(want.shape, first),
      element_text(got.dtype, element_bits(got, first)),
      element_text(want.dtype, element_bits(want, first)), mismatches, want.size());
  if (is_float(want.dtype)) report += fmt::format(", at most {} ulp", max_steps);
  return Comparison::failed(report);
}

// e4m3 or e2m1 codes as signed steps, one per logical element.
std::vector<int64_t> code_steps(const TensorView& view) {
  std::vector<int64_t> steps;
  for (int64_t i = 0; i < view.size(); ++i) {
    const uint64_t bits = element_bits(view, i);
    if (view.dtype == DType::e4m3) {
      steps.push_back(steps_from_zero(DType::e4m3, bits));
    } else {
      steps.push_back(steps_from_zero(DType::e2m1, bits & 0xF));
      steps.push_back(steps_from_zero(DType::e2m1, bits >> 4));
    }
  }
  return steps;
}

// UE8M0 bytes of i32 words.
std::vector<int64_t> word_bytes(const TensorView& view) {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < view.size(); ++i) {
    const uint64_t bits = element_bits(view, i);
    for (int byte = 0; byte < 4; ++byte) {
      list.push_back(static_cast<int64_t>(bits >> (8 * byte) & 0xFF));
    }
  }
  return list;
}

Comparison compare_steps(const std::vector<int64_t>& got, const std::vector<int64_t>& want,
                         int64_t allowed) {
  int64_t apart = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const int64_t distance = std::abs(got[i] - want[i]);
    if (distance > 1) {
      return Comparison::failed(fmt::format("code {} is {} steps off, 1 is allowed", i, distance));
    }
    apart += distance;
  }
  if (apart <= allowed) return {};
  return Comparison::failed(
      fmt::format("{} of {} codes are one step off, {} are allowed", apart, want.size(), allowed));
}

Comparison compare_scales(const TensorView& got, const TensorView& want, int64_t allowed) {
  int64_t apart = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const double a = value_of(DType::f32, element_bits(got, i));
    const double b = value_of(DType::f32, element_bits(want, i));
    if (a == b || std::fabs(a - b) <= 1e-6 * std::fabs(b)) continue;
    if (a != 2 * b && 2 * a != b) {
      return Comparison::failed(
          fmt::format("scale {}: got {}, want {}", element_name(want.shape, i), a, b));
    }
    ++apart;
  }
  if (apart <= allowed) return {};
  return Comparison::failed(fmt::format("{} of {} scales are one power of two off, {} are allowed",
                                        apart, want.size(), allowed));
}

}  // namespace

Comparison compare_values(const TensorView& got, const std::function<double(int64_t)>& want) {
  int64_t mismatches = 0, first = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    if (value_of(got.dtype, element_bits(got, i)) == want(i)) continue;
    if (mismatches++ == 0) first = i;
  }
  if (mismatches == 0) return {};
  return Comparison::failed(fmt::format(
      "first mismatch at {}: got {}, want {}; {} of {} differ", element_name(got.shape, first),
      element_text(got.dtype, element_bits(got, first)), want(first), mismatches, got.size()));
}

Comparison compare_bits(const TensorView& got, const TensorView& want) {
  if (auto type = compare_type(got, want)) return *type;
  if (want.size() > 0 && !(got.strides == want.strides)) {
    return Comparison::failed(fmt::format("got strides {}, want strides {}", to_string(got.strides),
                                          to_string(want.strides)));
  }
  return compare_elements(got, want, [](uint64_t a, uint64_t b) { return a == b; });
}

Comparison compare_ulps(const TensorView& got, const TensorView& want, int64_t ulps) {
  TESSERA_CHECK(is_float(want.dtype), "ulps are counted between floats");
  const DType dtype = want.dtype;
  return compare_elements(got, want, [=](uint64_t a, uint64_t b) {
    const bool a_is_nan = std::isnan(value_of(dtype, a));
    const bool b_is_nan = std::isnan(value_of(dtype, b));
    if (a_is_nan || b_is_nan) return a_is_nan && b_is_nan;
    return std::abs(steps_from_zero(dtype, a) - steps_from_zero(dtype, b)) <= ulps;
  });
}

Comparison compare_close(const TensorView& got, const TensorView& want, double rtol, double atol) {
  const DType dtype = want.dtype;
  return compare_elements(got, want, [=](uint64_t a_bits, uint64_t b_bits) {
    const double a = value_of(dtype, a_bits);
    const double b = value_of(dtype, b_bits);
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    if (std::isinf(a) || std::isinf(b)) return a == b;
    return std::fabs(a - b) <= atol + rtol * std::fabs(b);
  });
}

Comparison compare_calc_diff(const TensorView& got, const TensorView& want, double limit) {
  if (auto type = compare_type(got, want)) return *type;
  double products = 0, squares = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const double a = value_of(got.dtype, element_bits(got, i));
    const double b = value_of(want.dtype, element_bits(want, i));
    if (std::isinf(b) && a == b) continue;
    products += a * b;
    squares += a * a + b * b;
  }
  const double diff = squares == 0 ? 0 : 1 - 2 * products / squares;
  if (diff <= limit) return {};  // false for a NaN
  return Comparison::failed(fmt::format("calc_diff is {}, limit {}", diff, limit));
}

Comparison compare_sorted_rows(const TensorView& got, const TensorView& want) {
  if (auto type = compare_type(got, want)) return *type;
  const int rank = want.rank();
  const int64_t row_size = rank == 0 ? 1 : want.shape[rank - 1];
  const int64_t num_rows = row_size == 0 ? 0 : want.size() / row_size;
  for (int64_t row = 0; row < num_rows; ++row) {
    std::vector<uint64_t> a, b;
    for (int64_t i = 0; i < row_size; ++i) {
      a.push_back(element_bits(got, row * row_size + i));
      b.push_back(element_bits(want, row * row_size + i));
    }
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    if (a != b) return Comparison::failed(fmt::format("row {} holds other elements", row));
  }
  return {};
}

Comparison compare_quantised(const TensorView& got, const TensorView& want) {
  if (auto type = compare_type(got, want)) return *type;
  switch (want.dtype) {
    case DType::e4m3:
    case DType::i8: {
      const std::vector<int64_t> want_steps = code_steps(want);
      const auto count = static_cast<int64_t>(want_steps.size());
      return compare_steps(code_steps(got), want_steps, std::max<int64_t>(2, count / 1000));
    }
    case DType::f32:
      return compare_scales(got, want, std::max<int64_t>(1, want.size() / 1000));
    case DType::i32:
      return compare_steps(word_bytes(got), word_bytes(want),
                           std::max<int64_t>(1, 4 * want.size() / 1000));
    case DType::i64:  // counts
      return compare_bits(got, want);
    default:
      internal_error("no rule for quantised " + std::string(name(want.dtype)));
  }
}

}  // namespace tessera::test
