// The operands of HardwareProduct, decoded: for each factor its value as an f32 and the exponent of its leading place, in
// the lanes that its sums need.

#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "codegen/cpu/arithmetic/hardware_product.h"

namespace tessera::codegen::cpu {
namespace {

constexpr int kLeastLead = -50, kMostLead = 62;  // of a factor: products and scales are normal f32
constexpr uint32_t kOne = 0x3F800000;

/// The value and the leading place of each code of an 8-bit float; infinities and NaN are their own values.
struct DecodedByte {
  float value = 0;
  int32_t lead = kLeadOfZero;
};
using ByteTable = std::array<DecodedByte, 256>;

DecodedByte decoded(const Factor& factor) {
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
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(factor.place + kBiasOfF32) << 23);
  return {sign * static_cast<float>(factor.significand) * scale, factor.lead};
}

/// Null for wider formats.
const ByteTable* byte_table(DType dtype, bool is_widened) {
  if (bits(dtype) != 8) return nullptr;
  const auto made = [](DType of, Factor (*factor)(DType, uint32_t)) {
    ByteTable table;
    for (uint32_t raw = 0; raw < table.size(); ++raw) table.at(raw) = decoded(factor(of, raw));
    return table;
  };
  static const ByteTable e4m3 = made(DType::e4m3, factor_of);
  static const ByteTable e5m2 = made(DType::e5m2, factor_of);
  static const ByteTable wide_e4m3 = made(DType::e4m3, widened_factor_of);
  static const ByteTable wide_e5m2 = made(DType::e5m2, widened_factor_of);
  if (dtype == DType::e4m3) return is_widened ? &wide_e4m3 : &e4m3;
  return is_widened ? &wide_e5m2 : &e5m2;
}

}  // namespace

/// Decodes four elements at a time, and notes those of a line that are extreme, infinite or NaN, or numbers.
struct HardwareProduct::Decoding {
  DType dtype;
  const ByteTable* table;  // of an 8-bit float, else null
  Words extreme = {}, special = {}, number = {};
  Floats value = {};
  Ints lead = {};

  void next(const uint32_t* raw) {
    if (table != nullptr) return next_bytes(raw);
    Words bits;
    std::memcpy(&bits, raw, sizeof bits);
    if (dtype == DType::f16) return next_halves(bits);
    const Words wide = (dtype == DType::bf16 ? bits << 16 : bits) & ~0x1FFFu;
    const Ints exponent = std::bit_cast<Ints>(wide >> 23 & 0xFF) - kBiasOfF32;
    const Ints is_plain = (exponent >= kLeastLead) & (exponent <= kMostLead);
    const Ints is_special = exponent == kExponentOfInfinity - kBiasOfF32;
    set(wide, exponent, is_plain, is_special);
    extreme |= std::bit_cast<Words>(~(is_plain | is_special)) & wide << 1;
  }

  Line line() const {
    return {any_lane(extreme), any_lane(special), !any_lane(extreme | special | number)};
  }

 private:
  void next_halves(Words bits) {
    constexpr int kMostExponent = 31, kHalfBias = 15;
    const Words size = bits & 0x7FFF, sign = (bits & 0x8000) << 16;
    const Ints exponent = std::bit_cast<Ints>(size >> 10);
    const Ints is_special = exponent == kMostExponent;
    const Ints is_plain = ~is_special & (size != 0);
    // Subnormals become normal.
    const Floats scaled = std::bit_cast<Floats>(size << 13) * 0x1p112f;
    const Words wide = std::bit_cast<Words>(is_special) & (size << 13 | kExponent);
    const Words number_bits = std::bit_cast<Words>(~is_special) & std::bit_cast<Words>(scaled);
    const Ints is_subnormal = exponent == 0;  // -1 where it is
    set(wide | number_bits | sign, exponent - is_subnormal - kHalfBias, is_plain, is_special);
  }

  void next_bytes(const uint32_t* raw) {
    for (int i = 0; i < 4; ++i) {
      const DecodedByte& one = (*table)[raw[i]];
      value[i] = one.value;
      lead[i] = one.lead;
    }
    const Words bits = std::bit_cast<Words>(value);
    special |= std::bit_cast<Words>((bits & kExponent) == kExponent);
    number |= std::bit_cast<Words>(lead > kLeadOfZero);
  }

  void set(Words wide, Ints exponent, Ints is_plain, Ints is_special) {
    value = std::bit_cast<Floats>(std::bit_cast<Words>(is_plain | is_special) & wide);
    lead = (is_plain & exponent) | (~is_plain & kLeadOfZero);
    special |= std::bit_cast<Words>(is_special);
    number |= std::bit_cast<Words>(is_plain);
  }
};

void HardwareProduct::decode_left() {
  a_.has_special = false;
  for (int row = 0; row < rows_; ++row) {
    Decoding decoding{a_dtype_, byte_table(a_dtype_, is_emulated_)};
    for (int k = 0; k < depth_; k += 4) {
      const auto at = static_cast<size_t>(row * depth_ + k);
      decoding.next(&a_.raw[at]);
      const Words lead = std::bit_cast<Words>(decoding.lead + kBiasOfF32);
      const Words twice = (lead & 0xFFFF) | lead << 16;
      for (int i = 0; i < 4; ++i) {
        a_.factors[at + static_cast<size_t>(i)] = {Floats{} + decoding.value[i],
                                                   std::bit_cast<Shorts>(Words{} + twice[i])};
      }
    }
    Line& line = a_.lines[static_cast<size_t>(row)];
    line = decoding.line();
    a_.has_special = a_.has_special || line.is_special;
  }
}

void HardwareProduct::decode_right() {
  b_.has_special = false;
  for (size_t block = 0; block < b_.lines.size(); ++block) {
    Decoding decoding{b_dtype_, byte_table(b_dtype_, is_emulated_)};
    const size_t end = (block + 1) * static_cast<size_t>(depth_);
    for (size_t at = block * static_cast<size_t>(depth_); at < end; ++at) {
      Right& right = b_.factors[at];
      decoding.next(&b_.raw[at * kColumnsTogether]);
      right.even = decoding.value;
      const Words even = std::bit_cast<Words>(decoding.lead) & 0xFFFF;
      decoding.next(&b_.raw[at * kColumnsTogether + 4]);
      right.odd = decoding.value;
      right.lead = std::bit_cast<Shorts>(even | std::bit_cast<Words>(decoding.lead) << 16);
    }
    b_.lines[block] = decoding.line();
    b_.has_special = b_.has_special || b_.lines[block].is_special;
  }
}

/// Sets the signs of numbers, and the values of others.
template <class Factors>
void HardwareProduct::decode_kinds(DType dtype, Operand<Factors>& operand) const {
  operand.kind.resize(operand.raw.size());
  const size_t size = operand.raw.size() / operand.lines.size();
  Decoding decoding{dtype, byte_table(dtype, is_emulated_)};
  for (size_t line = 0; line < operand.lines.size(); ++line) {
    Words nan = {};
    for (size_t at = line * size; at < (line + 1) * size; at += 4) {
      decoding.next(&operand.raw[at]);
      const Words bits = std::bit_cast<Words>(decoding.value);
      const Ints magnitude = std::bit_cast<Ints>(bits & ~kSignBit);
      const Words is_number = std::bit_cast<Words>((magnitude != 0) & (magnitude < kInfinityBits));
      const Words kinds = (bits & ~is_number) | (is_number & (kOne | (bits & kSignBit)));
      std::memcpy(&operand.kind[at], &kinds, sizeof kinds);
      nan |= std::bit_cast<Words>(magnitude > kInfinityBits);
    }
    operand.lines[line].has_nan = any_lane(nan);
    if (!operand.lines[line].is_extreme) continue;
    for (size_t at = line * size; at < (line + 1) * size; ++at) {  // extreme numbers have no value
      const Factor one = factor(dtype, operand.raw[at]);
      if (one.kind == Factor::Kind::number) operand.kind[at] = one.negative ? -1.0f : 1.0f;
    }
  }
}

void HardwareProduct::decode() {
  decode_left();
  decode_right();
  if (a_.has_special || b_.has_special) {
    decode_kinds(a_dtype_, a_);
    decode_kinds(b_dtype_, b_);
  }
  is_decoded_ = true;
}

}  // namespace tessera::codegen::cpu
