#include "codegen/cpu/arithmetic/matrix_sums.h"

#include <algorithm>
#include <array>
#include <bit>

#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

constexpr uint32_t kNan = 0x7FFFFFFF, kSign = 0x80000000, kPlusInfinity = 0x7F800000;

struct Format {
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity = true;  // else only one code of each sign is NaN
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {8, 10, 127};  // tf32
    case DType::bf16:
      return {8, 7, 127};
    case DType::f16:
      return {5, 10, 15};
    case DType::e4m3:
      return {4, 3, 7, false};
    case DType::e5m2:
      return {5, 2, 15};
    default:
      internal_error("a product of operands that no instruction takes");
  }
}

Factor factor_of(const Format& format, uint32_t raw) {
  const int mantissa_bits = format.mantissa_bits;
  const auto most = static_cast<int32_t>((1u << format.exponent_bits) - 1);
  const auto mantissa = static_cast<int32_t>(raw & ((1u << mantissa_bits) - 1));
  const auto exponent = static_cast<int32_t>(raw >> mantissa_bits) & most;
  Factor factor;
  factor.negative = (raw >> (format.exponent_bits + mantissa_bits) & 1) != 0;
  if (exponent == most && (format.has_infinity || mantissa == (1 << mantissa_bits) - 1)) {
    const bool infinite = format.has_infinity && mantissa == 0;
    factor.kind = infinite ? Factor::Kind::infinity : Factor::Kind::nan;
    return factor;
  }
  if (exponent == 0 && mantissa == 0) return factor;
  factor.kind = Factor::Kind::number;
  factor.significand = exponent == 0 ? mantissa : mantissa | 1 << mantissa_bits;
  factor.lead = std::max(exponent, 1) - format.bias;
  factor.place = factor.lead - mantissa_bits;
  return factor;
}

/// A summand: value * 2^place.
struct Term {
  bool negative = false;
  int64_t value = 0;
  int32_t place = 0, lead = 0;
};

/// Tracks infinities and NaN among the factors of a sum.
class Specials {
 public:
  void add(const Factor& a, const Factor& b) {
    using Kind = Factor::Kind;
    const bool infinite = a.kind == Kind::infinity || b.kind == Kind::infinity;
    const bool zero = a.kind == Kind::zero || b.kind == Kind::zero;
    nan_ = nan_ || a.kind == Kind::nan || b.kind == Kind::nan || (infinite && zero);
    if (infinite) (a.negative != b.negative ? minus_ : plus_) = true;
  }
  void add(const Factor& c) {
    nan_ = nan_ || c.kind == Factor::Kind::nan;
    if (c.kind == Factor::Kind::infinity) (c.negative ? minus_ : plus_) = true;
  }
  bool any() const { return nan_ || plus_ || minus_; }
  uint32_t result() const {
    if (nan_ || (plus_ && minus_)) return kNan;
    return plus_ ? kPlusInfinity : kPlusInfinity | kSign;
  }

 private:
  bool nan_ = false, plus_ = false, minus_ = false;
};

int64_t shifted(int64_t value, int32_t left) {
  if (left >= 0) return value << left;
  return left < -62 ? 0 : value >> -left;
}

}  // namespace

uint32_t truncated(int64_t total, int32_t quantum, int stored) {
  if (total == 0) return 0;
  const uint32_t sign = total < 0 ? kSign : 0;
  const int64_t size = std::abs(total);
  const auto top = static_cast<int32_t>(std::bit_width(static_cast<uint64_t>(size))) - 1;
  const int32_t exponent = top + quantum;
  if (exponent > 127) return sign | kPlusInfinity;
  if (exponent < -126) {
    const auto mantissa = static_cast<uint32_t>(shifted(size, quantum + 149));
    return mantissa == 0 ? 0 : sign | mantissa;
  }
  const auto mantissa = static_cast<uint32_t>(shifted(size, stored - top));
  return sign | static_cast<uint32_t>(exponent + 127) << 23 |
         (mantissa << (23 - stored) & 0x7FFFFF);
}

Factor factor_of(DType dtype, uint32_t raw) {
  return factor_of(format_of(dtype), dtype == DType::f32 ? raw >> 13 : raw);
}

Factor widened_factor_of(DType dtype, uint32_t raw) {
  Factor factor = factor_of(dtype, raw);
  if (factor.kind != Factor::Kind::number) return factor;
  const auto top =
      static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(factor.significand))) - 1;
  // In f16 all of them are normal, except the smallest of e5m2, which keep their place.
  factor.lead = std::max(factor.place + top, -14);
  return factor;
}

uint32_t sum_of_products(uint32_t c, const Factor* a, const Factor* b, int count, SumRule rule) {
  constexpr int kMost = 32;
  TESSERA_CHECK(count <= kMost, "an instruction takes 32 bytes of k");
  const Factor before = factor_of(Format{8, 23, 127}, c);
  Specials specials;
  specials.add(before);
  for (int i = 0; i < count; ++i) specials.add(a[i], b[i]);
  if (specials.any()) return specials.result();
  std::array<Term, kMost + 1> terms;
  size_t size = 0;
  for (int i = 0; i < count; ++i) {
    if (a[i].kind == Factor::Kind::zero || b[i].kind == Factor::Kind::zero) continue;
    terms[size++] = {a[i].negative != b[i].negative, int64_t{a[i].significand} * b[i].significand,
                     a[i].place + b[i].place, a[i].lead + b[i].lead};
  }
  if (before.kind != Factor::Kind::zero) {
    terms[size++] = {before.negative, before.significand, before.place, before.lead};
  }
  if (size == 0) return 0;
  int32_t most = terms[0].lead;
  for (size_t i = 1; i < size; ++i) most = std::max(most, terms[i].lead);
  const int32_t quantum = most - rule.kept;
  int64_t total = 0;
  for (size_t i = 0; i < size; ++i) {
    const int64_t value = shifted(terms[i].value, terms[i].place - quantum);
    total += terms[i].negative ? -value : value;
  }
  return truncated(total, quantum, rule.stored);
}

}  // namespace tessera::codegen::cpu
