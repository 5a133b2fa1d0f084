#include "tests/reference/numeric.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "dsl/base/error.h"

namespace tessera::reference {
namespace {

struct Format {
  int exponent_bits, mantissa_bits, bias;
  uint32_t max_finite;  // codes above it are infinity or NaN
  uint32_t nan;
  bool has_infinity;  // code max_finite + 1

  int magnitude_bits() const { return exponent_bits + mantissa_bits; }
};

const Format& format_of(DType dtype) {
  static const Format f32{8, 23, 127, 0x7F7FFFFF, 0x7FFFFFFF, true};
  static const Format f16{5, 10, 15, 0x7BFF, 0x7FFF, true};
  static const Format bf16{8, 7, 127, 0x7F7F, 0x7FFF, true};
  static const Format e4m3{4, 3, 7, 0x7E, 0x7F, false};
  static const Format e5m2{5, 2, 15, 0x7B, 0x7F, true};
  static const Format e2m1{2, 1, 1, 7, 7, false};
  switch (dtype) {
    case DType::f32:
      return f32;
    case DType::f16:
      return f16;
    case DType::bf16:
      return bf16;
    case DType::e4m3:
      return e4m3;
    case DType::e5m2:
      return e5m2;
    case DType::e2m1:
      return e2m1;
    default:
      internal_error("no small float: " + std::string(name(dtype)));
  }
}

// The magnitude as if every code were a number: the code after the largest finite one stands for
// the value at which rounding upwards ends.
double magnitude(const Format& f, uint32_t code) {
  const uint32_t mantissa = code & ((1U << f.mantissa_bits) - 1);
  const int exponent = static_cast<int>(code >> f.mantissa_bits);
  if (exponent == 0) return std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  return std::ldexp(mantissa + (1U << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
}

std::vector<double> make_table(DType dtype) {
  const Format& f = format_of(dtype);
  std::vector<double> table;
  for (uint32_t code = 0; code <= f.max_finite + 1; ++code) table.push_back(magnitude(f, code));
  return table;
}

const std::vector<double>& table_of(DType dtype) {
  static const std::vector<double> f16 = make_table(DType::f16);
  static const std::vector<double> bf16 = make_table(DType::bf16);
  static const std::vector<double> e4m3 = make_table(DType::e4m3);
  static const std::vector<double> e5m2 = make_table(DType::e5m2);
  static const std::vector<double> e2m1 = make_table(DType::e2m1);
  switch (dtype) {
    case DType::f16:
      return f16;
    case DType::bf16:
      return bf16;
    case DType::e4m3:
      return e4m3;
    case DType::e5m2:
      return e5m2;
    case DType::e2m1:
      return e2m1;
    default:
      internal_error("no table for " + std::string(name(dtype)));
  }
}

}  // namespace

uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
float float_of(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
uint32_t nan_code(DType format) {
  return format_of(format).nan;
}
uint32_t max_finite_code(DType format) {
  return format_of(format).max_finite;
}

double decode(DType format, uint32_t code) {
  if (format == DType::f32) return static_cast<double>(float_of(code));
  const Format& f = format_of(format);
  const uint32_t sign_bit = 1U << f.magnitude_bits();
  const uint32_t unsigned_code = code & (sign_bit - 1);
  double value = 0;
  if (unsigned_code <= f.max_finite) {
    value = table_of(format)[unsigned_code];
  } else if (f.has_infinity && unsigned_code == f.max_finite + 1) {
    value = std::numeric_limits<double>::infinity();
  } else {
    value = std::numeric_limits<double>::quiet_NaN();
  }
  return (code & sign_bit) != 0 ? -value : value;
}

uint32_t encode(DType format, double value) {
  const Format& f = format_of(format);
  if (std::isnan(value)) return f.nan;
  if (format == DType::f32)
    return bits_of(static_cast<float>(value));  // IEEE: nearest, ties to even
  const uint32_t sign = std::signbit(value) ? 1U << f.magnitude_bits() : 0;
  const double magnitude = std::fabs(value);

  const std::vector<double>& table = table_of(format);
  const double largest = table[f.max_finite];
  if (!f.has_infinity && magnitude >= largest) return sign | f.max_finite;
  if (magnitude == 0) return sign;
  if (magnitude > table.back()) return sign | (f.max_finite + 1);
  // Only the codes of its own power of two are searched, and the first one of the next.
  const auto exponent = static_cast<uint32_t>(std::max(std::ilogb(magnitude) + f.bias, 0));
  const auto band = table.begin() + (exponent << f.mantissa_bits);
  const auto band_size = std::min<int64_t>(table.end() - band, (1 << f.mantissa_bits) + 1);
  const auto above = std::lower_bound(band, band + band_size, magnitude);
  const auto code = static_cast<uint32_t>(above - table.begin());
  if (*above == magnitude) return sign | code;
  const double up = *above - magnitude;
  const double down = magnitude - *(above - 1);
  const bool round_up = up < down || (up == down && code % 2 == 0);
  return sign | (round_up ? code : code - 1);
}

}  // namespace tessera::reference
