// Conversions against a model written from the definition of the formats: a table of all values,
// the nearest one wins, ties go to the even code.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codegen/cpu/arithmetic/column_ops.h"
#include "tests/support/catch.h"

namespace tessera::codegen::cpu {
namespace {

struct Format {
  DType type;
  int exponent_bits, mantissa_bits;
  bool has_infinity;
  uint32_t nan;  // the canonical code
};
constexpr Format kF16{DType::f16, 5, 10, true, 0x7FFF};
constexpr Format kBf16{DType::bf16, 8, 7, true, 0x7FFF};
constexpr Format kE4m3{DType::e4m3, 4, 3, false, 0x7F};
constexpr Format kE5m2{DType::e5m2, 5, 2, true, 0x7F};
constexpr Format kE2m1{DType::e2m1, 2, 1, false, 0x7};

uint32_t sign_bit(const Format& f) {
  return 1u << (f.exponent_bits + f.mantissa_bits);
}

/// The value of a code without its sign; NaN and infinity as such.
double value_of(const Format& f, uint32_t code) {
  const uint32_t exponent = code >> f.mantissa_bits;
  const uint32_t mantissa = code & ((1u << f.mantissa_bits) - 1);
  const uint32_t top = (1u << f.exponent_bits) - 1;
  if (f.has_infinity && exponent == top) {
    return mantissa == 0 ? INFINITY : std::numeric_limits<double>::quiet_NaN();
  }
  if (f.type == DType::e4m3 && code == 0x7F) return std::numeric_limits<double>::quiet_NaN();
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const double fraction = std::ldexp(mantissa, -f.mantissa_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - bias)
                       : std::ldexp(1 + fraction, static_cast<int>(exponent) - bias);
}

/// Finite magnitudes in ascending order, indexed by code, and one more step as if the format went
/// on.
std::vector<double> magnitudes(const Format& f) {
  std::vector<double> values;
  for (uint32_t code = 0; code < sign_bit(f); ++code) {
    const double value = value_of(f, code);
    if (!std::isfinite(value)) break;
    values.push_back(value);
  }
  values.push_back(2 * values.back() - values[values.size() - 2]);
  return values;
}

uint32_t encode(const Format& f, const std::vector<double>& values, double x) {
  if (std::isnan(x)) return f.nan;
  const uint32_t sign = std::signbit(x) ? sign_bit(f) : 0;
  const double a = std::fabs(x);
  const auto past_end = static_cast<uint32_t>(values.size() - 1);
  uint32_t code = past_end;
  if (a < values.back()) {
    const auto above = std::upper_bound(values.begin(), values.end(), a);
    code = static_cast<uint32_t>(above - values.begin()) - 1;
    const double down = a - values[code], up = values[code + 1] - a;
    if (up < down || (up == down && (code & 1) != 0)) ++code;
  }
  // The step past the end is infinity, or the largest value for formats that saturate.
  if (!f.has_infinity) code = std::min(code, past_end - 1);
  return code | sign;
}

template <class To, class From>
To convert(DType from, DType to, From value) {
  To result{};
  find_conversion(from, to)(&result, &value, nullptr, nullptr, 1);
  return result;
}

uint32_t convert_from_f32(const Format& f, float value) {
  return bits(f.type) == 16 ? convert<uint16_t>(DType::f32, f.type, value)
                            : convert<uint8_t>(DType::f32, f.type, value);
}

uint32_t decode_bits(const Format& f, uint32_t code) {
  return bits(f.type) == 16 ? convert<uint32_t>(f.type, DType::f32, static_cast<uint16_t>(code))
                            : convert<uint32_t>(f.type, DType::f32, static_cast<uint8_t>(code));
}

}  // namespace

TEST_CASE("every code of a narrow float decodes to its value", "[cpu][conversions]") {
  for (const Format& f : {kF16, kBf16, kE4m3, kE5m2, kE2m1}) {
    CAPTURE(name(f.type));
    uint32_t wrong = 0;
    for (uint32_t code = 0; code < 2 * sign_bit(f); ++code) {
      const double magnitude = value_of(f, code & (sign_bit(f) - 1));
      const double value = (code & sign_bit(f)) != 0 ? -magnitude : magnitude;
      const uint32_t want =
          std::isnan(magnitude) ? 0x7FFFFFFFu : std::bit_cast<uint32_t>(static_cast<float>(value));
      wrong += decode_bits(f, code) != want;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("f32 rounds to the nearest narrow float around every value and tie",
          "[cpu][conversions]") {
  for (const Format& f : {kF16, kBf16, kE4m3, kE5m2, kE2m1}) {
    CAPTURE(name(f.type));
    const std::vector<double> values = magnitudes(f);
    uint32_t wrong = 0;
    float first_wrong = 0;
    const auto check = [&](float x) {
      for (const float signed_x : {x, -x}) {
        if (convert_from_f32(f, signed_x) == encode(f, values, signed_x)) continue;
        if (wrong++ == 0) first_wrong = signed_x;
      }
    };
    for (size_t code = 0; code + 1 < values.size(); ++code) {
      for (const double at : {values[code], (values[code] + values[code + 1]) / 2}) {
        const auto bits = std::bit_cast<uint32_t>(static_cast<float>(at));
        for (int step = -3; step <= 3; ++step) {
          check(
              std::bit_cast<float>(bits + static_cast<uint32_t>(bits == 0 && step < 0 ? 0 : step)));
        }
      }
    }
    for (const float special :
         {INFINITY, std::numeric_limits<float>::max(), std::numeric_limits<float>::min(),
          std::numeric_limits<float>::denorm_min(), 448.0f, 464.0f, 465.0f, 57344.0f, 61440.0f,
          65504.0f, 65520.0f, 6.0f, 7.0f}) {
      check(special);
    }
    std::mt19937 random(1);
    for (int i = 0; i < 200000; ++i) {
      const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
      if (!std::isnan(x)) check(x);
    }
    for (const uint32_t nan : {0x7FC00000u, 0xFFC00001u, 0x7F800001u, 0xFFFFFFFFu}) {
      wrong += convert_from_f32(f, std::bit_cast<float>(nan)) != f.nan;
    }
    CAPTURE(first_wrong);
    CHECK(wrong == 0);
  }
}

TEST_CASE("conversions between narrow floats equal two steps through f32", "[cpu][conversions]") {
  for (const Format& from : {kF16, kBf16}) {
    for (const Format& to : {kF16, kBf16, kE4m3, kE5m2, kE2m1}) {
      if (from.type == to.type) continue;
      CAPTURE(name(from.type), name(to.type));
      const std::vector<double> values = magnitudes(to);
      uint32_t wrong = 0;
      for (uint32_t code = 0; code < 0x10000; ++code) {
        const double magnitude = value_of(from, code & 0x7FFF);
        const uint32_t want = encode(to, values, (code & 0x8000) != 0 ? -magnitude : magnitude);
        const auto source = static_cast<uint16_t>(code);
        const uint32_t got = bits(to.type) == 16 ? convert<uint16_t>(from.type, to.type, source)
                                                 : convert<uint8_t>(from.type, to.type, source);
        wrong += got != want;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("integers round once, also to narrow floats", "[cpu][conversions]") {
  std::mt19937_64 random(2);
  for (const Format& f : {kF16, kBf16, kE4m3, kE5m2, kE2m1}) {
    CAPTURE(name(f.type));
    const std::vector<double> values = magnitudes(f);
    const auto encode_integer = [&](int64_t v) {
      // double holds 53 bits; all samples below fit, so the model sees the exact integer.
      return encode(f, values, static_cast<double>(v));
    };
    const auto check = [&](int64_t v) {
      const uint32_t got = bits(f.type) == 16 ? convert<uint16_t>(DType::i64, f.type, v)
                                              : convert<uint8_t>(DType::i64, f.type, v);
      REQUIRE(got == encode_integer(v));
      if (v != static_cast<int32_t>(v)) return;
      const auto narrow = static_cast<int32_t>(v);
      const uint32_t from_i32 = bits(f.type) == 16 ? convert<uint16_t>(DType::i32, f.type, narrow)
                                                   : convert<uint8_t>(DType::i32, f.type, narrow);
      REQUIRE(from_i32 == got);
    };
    for (int width = 1; width <= 52; ++width) {
      for (int i = 0; i < 50; ++i) {
        const auto v = static_cast<int64_t>(random() >> (64 - width));
        check(v);
        check(-v);
      }
    }
    // 1 above a tie of bf16: f32 would round it onto the tie.
    check((int64_t{0x101} << 24) + 1);
    check((int64_t{0x103} << 30) - 1);
  }
  CHECK(convert<float>(DType::i32, DType::f32, int32_t{16777217}) == 16777216.0f);
  CHECK(convert<float>(DType::u64, DType::f32, ~uint64_t{0}) == 18446744073709551616.0f);
  CHECK(convert<float>(DType::u32, DType::f32, ~uint32_t{0}) == 4294967296.0f);
  CHECK(convert<uint16_t>(DType::boolean, DType::f16, uint8_t{1}) == 0x3C00);
}

TEST_CASE("floats to integers truncate, saturate and turn NaN into 0", "[cpu][conversions]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(convert<int32_t>(DType::f32, DType::i32, -1.99f) == -1);
  CHECK(convert<int32_t>(DType::f32, DType::i32, 3e9f) == INT32_MAX);
  CHECK(convert<int32_t>(DType::f32, DType::i32, -INFINITY) == INT32_MIN);
  CHECK(convert<int32_t>(DType::f32, DType::i32, nan) == 0);
  CHECK(convert<int32_t>(DType::f32, DType::i32, 2147483520.0f) == 2147483520);
  CHECK(convert<uint32_t>(DType::f32, DType::u32, -0.5f) == 0);
  CHECK(convert<uint32_t>(DType::f32, DType::u32, -7.0f) == 0);
  CHECK(convert<uint32_t>(DType::f32, DType::u32, 1e10f) == UINT32_MAX);
  CHECK(convert<int64_t>(DType::f32, DType::i64, 1e30f) == INT64_MAX);
  CHECK(convert<int64_t>(DType::f32, DType::i64, -1e30f) == INT64_MIN);
  CHECK(convert<int64_t>(DType::f32, DType::i64, nan) == 0);
  CHECK(convert<uint64_t>(DType::f32, DType::u64, 1e30f) == UINT64_MAX);
  CHECK(convert<int8_t>(DType::f32, DType::i8, 300.0f) == 127);
  CHECK(convert<int8_t>(DType::f32, DType::i8, -300.0f) == -128);
  CHECK(convert<uint8_t>(DType::f32, DType::u8, 300.0f) == 255);
  CHECK(convert<int16_t>(DType::bf16, DType::i16, uint16_t{0xC7C3}) == INT16_MIN);  // -99840
  CHECK(convert<uint8_t>(DType::f32, DType::boolean, -0.0f) == 0);
  CHECK(convert<uint8_t>(DType::f32, DType::boolean, nan) == 1);
  CHECK(convert<uint8_t>(DType::e4m3, DType::boolean, uint8_t{0x80}) == 0);
}

TEST_CASE("integers wrap into narrower integers and booleans are 0 or 1", "[cpu][conversions]") {
  CHECK(convert<int8_t>(DType::i32, DType::i8, int32_t{200}) == -56);
  CHECK(convert<uint16_t>(DType::i32, DType::u16, int32_t{-1}) == 0xFFFF);
  CHECK(convert<int64_t>(DType::i32, DType::i64, int32_t{-1}) == -1);
  CHECK(convert<uint64_t>(DType::i32, DType::u64, int32_t{-1}) == ~uint64_t{0});
  CHECK(convert<int64_t>(DType::u32, DType::i64, ~uint32_t{0}) == 0xFFFFFFFF);
  CHECK(convert<uint8_t>(DType::i64, DType::boolean, int64_t{1} << 40) == 1);
  CHECK(convert<int32_t>(DType::boolean, DType::i32, uint8_t{1}) == 1);
}

TEST_CASE("every pair of dtypes has a conversion", "[cpu][conversions]") {
  for (int from = 0; from < kNumDTypes; ++from) {
    for (int to = 0; to < kNumDTypes; ++to) {
      const auto source = static_cast<DType>(from), target = static_cast<DType>(to);
      CAPTURE(name(source), name(target));
      REQUIRE(find_conversion(source, target) != nullptr);
      // 1 is exact in every dtype: there and back.
      uint64_t one = 0, there = 0, back = 0;
      const int32_t start = 1;
      find_conversion(DType::i32, source)(&one, &start, nullptr, nullptr, 1);
      find_conversion(source, target)(&there, &one, nullptr, nullptr, 1);
      find_conversion(target, source)(&back, &there, nullptr, nullptr, 1);
      CHECK(back == one);
      CHECK(one != 0);
    }
  }
}

}  // namespace tessera::codegen::cpu
