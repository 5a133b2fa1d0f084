#include "codegen/cpu/hardware_product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "codegen/cpu/formats.h"

namespace tessera::codegen::cpu {
namespace {

constexpr int kLeastLead = -50, kMostLead = 62;  // of a factor: products and scales are normal f32
constexpr int kLeastMost = -100;                 // of a sum: 2^(kept - most) is a normal f32
constexpr float kNoLead = -1000;                 // of a zero: less than of any number
constexpr int kFitting = 8;                      // terms below 2^27 whose sum fits i32
constexpr float kFittingSum = 0x1.fp30f;         // of two such sums, each rounded
constexpr uint32_t kExponent = 0x7F800000, kQuietNan = 0x7FFFFFFF, kSignBit = 0x80000000;

// One lane for each of four columns.
using Floats = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(16)));  // may wrap

struct Decoded {
  float value = 0, lead = kNoLead;
  bool is_extreme = false;
};

/// Infinities and NaN are their own values.
Decoded decoded(const Factor& factor) {
  const float sign = factor.negative ? -1.0f : 1.0f;
  switch (factor.kind) {
    case Factor::Kind::zero:
      return {};
    case Factor::Kind::infinity:
      return {sign * std::numeric_limits<float>::infinity()};
    case Factor::Kind::nan:
      return {std::numeric_limits<float>::quiet_NaN()};
    case Factor::Kind::number:
      break;
  }
  if (factor.lead < kLeastLead || factor.lead > kMostLead) return {.is_extreme = true};
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(factor.place + 127) << 23);
  return {sign * static_cast<float>(factor.significand) * scale, static_cast<float>(factor.lead)};
}

/// Decodes a line of bf16 or tf32 unless an element is extreme: then returns false.
bool decode_wide(DType dtype, std::span<const uint32_t> raw, float* value, float* lead,
                 bool& is_special) {
  const int shift = dtype == DType::bf16 ? 16 : 0;
  uint32_t extreme = 0, special = 0;
  for (size_t i = 0; i < raw.size(); ++i) {
    const uint32_t wide = raw[i] << shift & ~0x1FFFu;
    const int exponent = static_cast<int>(wide >> 23 & 0xFF) - 127;
    const bool is_plain = exponent >= kLeastLead && exponent <= kMostLead;
    const bool is_no_number = exponent == 128;
    value[i] = std::bit_cast<float>(is_plain || is_no_number ? wide : 0);
    lead[i] = is_plain ? static_cast<float>(exponent) : kNoLead;
    extreme |= is_plain || is_no_number ? 0 : wide << 1;
    special |= is_no_number ? 1 : 0;
  }
  is_special = special != 0;
  return extreme == 0;
}

}  // namespace

HardwareProduct::HardwareProduct(DType a, DType b, ir::Instruction instruction, int rows,
                                 int columns, int depth)
    : columns_(columns),
      depth_(depth),
      element_bytes_(static_cast<size_t>(bytes(a))),
      is_8_bit_(bits(a) == 8),
      is_emulated_(is_8_bit_ && instruction == ir::Instruction::mma) {
  const auto allocate = [&](Operand& operand, DType dtype, int lines, int width) {
    const auto size = static_cast<size_t>(lines * width * depth);
    operand.dtype = dtype;
    operand.raw.resize(size);
    operand.value.resize(size);
    operand.lead.resize(size);
    operand.is_extreme.resize(static_cast<size_t>(lines));
    operand.is_special.resize(static_cast<size_t>(lines));
    operand.is_zero.resize(static_cast<size_t>(lines));
  };
  allocate(a_, a, rows, 1);
  allocate(b_, b, (columns + kTogether - 1) / kTogether, kTogether);
}

Factor HardwareProduct::factor(DType dtype, uint32_t raw) const {
  return is_emulated_ ? widened_factor_of(dtype, raw) : factor_of(dtype, raw);
}

void HardwareProduct::decode(Operand& operand) const {
  const bool is_wide = operand.dtype == DType::bf16 || operand.dtype == DType::f32;
  const size_t lines = operand.is_extreme.size(), size = operand.raw.size() / lines;
  std::array<Decoded, 256> table;
  for (uint32_t raw = 0; raw < table.size() && is_8_bit_; ++raw) {
    table.at(raw) = decoded(factor(operand.dtype, raw));
  }
  for (size_t line = 0; line < lines; ++line) {
    const size_t first = line * size;
    bool is_extreme = false, is_special = false;
    if (!is_wide || !decode_wide(operand.dtype, {&operand.raw[first], size}, &operand.value[first],
                                 &operand.lead[first], is_special)) {
      for (size_t at = first; at < first + size; ++at) {
        const uint32_t raw = operand.raw[at];
        const Decoded one = is_8_bit_ ? table[raw] : decoded(factor(operand.dtype, raw));
        is_extreme = is_extreme || one.is_extreme;
        is_special = is_special || !std::isfinite(one.value);
        operand.value[at] = one.value;
        operand.lead[at] = one.lead;
      }
    }
    const float* const leads = &operand.lead[first];
    const bool has_number =
        std::any_of(leads, leads + size, [](float lead) { return lead > kNoLead; });
    operand.is_zero[line] = has_number || is_extreme || is_special ? 0 : 1;
    operand.is_extreme[line] = is_extreme ? 1 : 0;
    operand.is_special[line] = is_special ? 1 : 0;
    operand.has_special = operand.has_special || is_special;
  }
}

/// Sets the signs of numbers, and the values of others.
void HardwareProduct::decode_kinds(Operand& operand) const {
  const size_t lines = operand.is_extreme.size(), size = operand.raw.size() / lines;
  operand.kind.resize(operand.raw.size());
  for (size_t at = 0; at < operand.raw.size(); ++at) {
    const float sign = std::copysign(1.0f, operand.value[at]);
    operand.kind[at] = operand.lead[at] > kNoLead ? sign : operand.value[at];
  }
  for (size_t line = 0; line < lines; ++line) {
    if (operand.is_extreme[line] == 0) continue;
    for (size_t at = line * size; at < (line + 1) * size; ++at) {  // extreme numbers have no value
      const Factor one = factor(operand.dtype, operand.raw[at]);
      if (one.kind == Factor::Kind::number) operand.kind[at] = one.negative ? -1.0f : 1.0f;
    }
  }
}

void HardwareProduct::add_row(int row, uint32_t* sums) {
  if (!is_decoded_) {
    a_.has_special = b_.has_special = false;
    decode(a_);
    decode(b_);
    if (a_.has_special || b_.has_special) {
      decode_kinds(a_);
      decode_kinds(b_);
    }
    is_decoded_ = true;
  }
  for (int first = 0; first < columns_; first += kTogether) {
    const auto bytes = static_cast<size_t>(std::min(kTogether, columns_ - first)) * sizeof(*sums);
    const int block = first / kTogether;
    std::array<uint32_t, kTogether> part = {};
    if (!is_emulated_) {
      std::memcpy(part.data(), sums + first, bytes);
      add(row, block, 0, depth_, is_8_bit_ ? kShortSums : kLongSums, part.data());
    } else {
      add(row, block, 0, depth_ / 2, kLongSums, part.data());
      add(row, block, depth_ / 2, depth_ / 2, kLongSums, part.data());
      for (int j = first; j < std::min(first + kTogether, columns_); ++j) {
        uint32_t& one = part[static_cast<size_t>(j - first)];
        const float total = std::bit_cast<float>(one) + std::bit_cast<float>(sums[j]);
        one = std::bit_cast<uint32_t>(F32::encode(total));
      }
    }
    std::memcpy(sums + first, part.data(), bytes);
  }
}

void HardwareProduct::add(int row, int block, int first, int count, SumRule rule,
                          uint32_t* sums) const {
  if (rule.stored == 23 && a_.is_zero[static_cast<size_t>(row)] != 0 &&
      b_.is_special[static_cast<size_t>(block)] == 0) {  // padding: the sums stay
    for (int j = 0; j < kTogether; ++j) {
      if (sums[j] << 1 == 0) sums[j] = 0;
      if ((sums[j] & ~kSignBit) > kExponent) sums[j] = kQuietNan;
    }
    return;
  }
  const auto left_at = static_cast<size_t>(row * depth_ + first);
  const auto right_at = static_cast<size_t>((block * depth_ + first) * kTogether);
  const auto load = [](const auto* from) {
    Floats lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
  };
  const Ints before = std::bit_cast<Ints>(load(sums));
  const Ints exponent = before >> 23 & 0xFF;
  const Ints no_exponent = exponent == 0;  // -1 where it is
  Floats most = __builtin_convertvector(exponent - 127 - no_exponent, Floats);
  most = before << 1 == 0 ? Floats{} + kNoLead : most;
  for (int k = 0; k < count; ++k) {
    const Floats lead = a_.lead[left_at + static_cast<size_t>(k)] +
                        load(&b_.lead[right_at + static_cast<size_t>(k * kTogether)]);
    most = most < lead ? lead : most;
  }
  const Floats top = most < kLeastMost ? Floats{} + kLeastMost : most;
  const Ints scale_exponent =
      __builtin_convertvector(static_cast<float>(rule.kept + 127) - top, Ints);
  const Floats scale = std::bit_cast<Floats>(scale_exponent << 23);
  const Ints is_finite = exponent != 0xFF;
  const Floats finite = is_finite ? std::bit_cast<Floats>(before) : Floats{};
  Ints terms = __builtin_convertvector(finite * scale, Ints), others = {};
  const auto term = [&](int k) {
    const Floats product = a_.value[left_at + static_cast<size_t>(k)] *
                           load(&b_.value[right_at + static_cast<size_t>(k * kTogether)]);
    return __builtin_convertvector(product * scale, Ints);
  };
  for (int k = 0; k < std::min(kFitting, count); ++k) terms += term(k);
  for (int k = kFitting; k < count; ++k) others += term(k);
  // Truncated to 24 bits: rounded to nearest, and one back where that is more.
  const Ints total =
      std::bit_cast<Ints>(std::bit_cast<Words>(terms) + std::bit_cast<Words>(others));
  Floats result = __builtin_convertvector(total, Floats);
  const Ints rounded = __builtin_convertvector(result, Ints);
  const Ints is_more = total < 0 ? rounded < total : rounded > total;
  const int32_t kept = -(1 << (23 - rule.stored));
  const Ints kept_bits = {kept, kept, kept, kept};
  result = std::bit_cast<Floats>((std::bit_cast<Ints>(result) + is_more) & kept_bits);
  result *= std::bit_cast<Floats>((254 - scale_exponent) << 23);
  const Ints magnitude = std::bit_cast<Ints>(result) & 0x7FFFFFFF;
  const Floats sum =
      __builtin_convertvector(terms, Floats) + __builtin_convertvector(others, Floats);
  const Ints fits = (sum < kFittingSum) & (sum > -kFittingSum);
  const Ints is_normal = (total == 0) | (magnitude >= 0x800000);
  const Ints is_large = (most >= kLeastMost) | (most < kNoLead / 2);
  const Ints is_right = is_finite & fits & is_normal & is_large;
  const bool is_extreme = a_.is_extreme[static_cast<size_t>(row)] != 0 ||
                          b_.is_extreme[static_cast<size_t>(block)] != 0;
  const bool is_special = a_.is_special[static_cast<size_t>(row)] != 0 ||
                          b_.is_special[static_cast<size_t>(block)] != 0;
  std::array<uint32_t, kTogether> results;
  std::memcpy(results.data(), &result, sizeof result);
  if (!is_extreme && !is_special && (is_right[0] & is_right[1] & is_right[2] & is_right[3]) != 0) {
    std::memcpy(sums, results.data(), sizeof results);
    return;
  }
  float specials[kTogether] = {};
  if (is_special) add_specials(row, block, first, count, specials);
  for (int j = 0; j < kTogether && block * kTogether + j < columns_; ++j) {
    const float special =
        is_finite[j] != 0 ? specials[j] : specials[j] + std::bit_cast<float>(sums[j]);
    if (!std::isfinite(special)) {
      sums[j] = std::isnan(special) ? kQuietNan : std::bit_cast<uint32_t>(special);
    } else if (is_extreme || is_right[j] == 0) {
      sums[j] = add_slowly(row, block * kTogether + j, first, count, rule, sums[j]);
    } else {
      sums[j] = results[static_cast<size_t>(j)];
    }
  }
}

/// Adds the products of the signs of numbers, infinities and NaN.
void HardwareProduct::add_specials(int row, int block, int first, int count,
                                   float* specials) const {
  const float* const left = &a_.kind[static_cast<size_t>(row * depth_)];
  const float* const right = &b_.kind[static_cast<size_t>(block * depth_ * kTogether)];
  for (int k = first; k < first + count; ++k) {
    for (int j = 0; j < kTogether; ++j) specials[j] += left[k] * right[k * kTogether + j];
  }
}

uint32_t HardwareProduct::add_slowly(int row, int column, int first, int count, SumRule rule,
                                     uint32_t before) const {
  std::array<Factor, kMaxDepth> left, right;
  const int block = column / kTogether;
  for (int k = 0; k < count; ++k) {
    const auto at = static_cast<size_t>(k);
    left.at(at) = factor(a_.dtype, a_.raw[static_cast<size_t>(row * depth_ + first + k)]);
    right.at(at) = factor(
        b_.dtype,
        b_.raw[static_cast<size_t>((block * depth_ + first + k) * kTogether + column % kTogether)]);
  }
  return sum_of_products(before, left.data(), right.data(), count, rule);
}

}  // namespace tessera::codegen::cpu
