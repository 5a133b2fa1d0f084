#include "tests/reference/tensor_core.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/reference/numeric.h"

namespace tessera::reference {
namespace {

using test::HostTensor;

constexpr uint32_t kNan = 0x7FFFFFFF;

/// Exponent of the smallest normal number.
int least_exponent(DType format) {
  switch (format) {
    case DType::e4m3:
      return -6;
    case DType::e5m2:
    case DType::f16:
      return -14;
    default:
      return -126;
  }
}

int mantissa_bits(DType format) {
  switch (format) {
    case DType::e4m3:
      return 3;
    case DType::e5m2:
      return 2;
    case DType::f16:
      return 10;
    case DType::bf16:
      return 7;
    default:
      return 23;
  }
}

struct Term {
  bool is_negative;
  int64_t magnitude;
  int place, lead;
};

/// magnitude * 2^place in units of 2^unit, toward zero.
int64_t in_units(const Term& t, int unit) {
  const int up = t.place - unit;
  if (up >= 0) return t.magnitude << up;
  return -up < 63 ? t.magnitude >> -up : 0;
}

/// total * 2^unit as f32, toward zero, with `stored` bits of mantissa.
uint32_t truncated(int64_t total, int unit, int stored) {
  if (total == 0) return 0;
  const uint32_t sign = total < 0 ? 0x80000000U : 0;
  const auto value = std::ldexp(static_cast<double>(std::abs(total)), unit);  // exact: below 2^53
  const int exponent = std::max(std::ilogb(value), -126);
  if (exponent > 127) return sign | 0x7F800000U;
  const int place = exponent - (std::ilogb(value) < -126 ? 23 : stored);
  const double kept = std::ldexp(std::floor(std::ldexp(value, -place)), place);
  return kept == 0 ? 0 : sign | bits_of(static_cast<float>(kept));
}

}  // namespace

Number number_of(DType format, uint32_t code) {
  Number n;
  n.value = decode(format, code);
  if (n.value == 0 || !std::isfinite(n.value)) return n;
  n.lead = std::max(std::ilogb(n.value), least_exponent(format));
  n.place = n.lead - mantissa_bits(format);
  n.magnitude = static_cast<int64_t>(std::ldexp(std::fabs(n.value), -n.place));
  return n;
}

uint32_t sum_of(TensorCore core, const Number& c, const Number* a, const Number* b, size_t count) {
  bool has_plus = false, has_minus = false;
  const auto note = [&](double value) {
    if (!std::isinf(value)) return;
    (value > 0 ? has_plus : has_minus) = true;
  };
  constexpr size_t kMostTerms = 33;
  std::array<Term, kMostTerms> terms{};
  size_t used = 0;
  for (size_t i = 0; i < count; ++i) {
    const double product = a[i].value * b[i].value;
    if (std::isnan(product)) return kNan;
    note(product);
    if (a[i].value == 0 || b[i].value == 0 || std::isinf(product)) continue;
    terms.at(used++) = {product < 0, a[i].magnitude * b[i].magnitude, a[i].place + b[i].place,
                        a[i].lead + b[i].lead};
  }
  if (std::isnan(c.value)) return kNan;
  note(c.value);
  if (has_plus && has_minus) return kNan;
  if (has_plus || has_minus) return has_plus ? 0x7F800000U : 0xFF800000U;
  if (c.value != 0) terms.at(used++) = {c.value < 0, c.magnitude, c.place, c.lead};
  if (used == 0) return 0;
  const std::span<const Term> all(terms.data(), used);
  int largest = all.front().lead;
  for (const Term& term : all) largest = std::max(largest, term.lead);
  int64_t total = 0;
  for (const Term& term : all) {
    const int64_t units = in_units(term, largest - core.kept);
    total += term.is_negative ? -units : units;
  }
  return truncated(total, largest - core.kept, core.stored);
}

std::vector<Number> numbers_of(const HostTensor& tensor) {
  std::vector<Number> numbers;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    numbers.push_back(number_of(tensor.dtype(), static_cast<uint32_t>(tensor.bits(i))));
  }
  return numbers;
}

uint32_t tensor_core_sum(TensorCore core, DType format, uint32_t c, std::span<const uint32_t> a,
                         std::span<const uint32_t> b) {
  std::vector<Number> left, right;
  for (const uint32_t code : a) left.push_back(number_of(format, code));
  for (const uint32_t code : b) right.push_back(number_of(format, code));
  return sum_of(core, number_of(DType::f32, c), left.data(), right.data(), a.size());
}

}  // namespace tessera::reference
