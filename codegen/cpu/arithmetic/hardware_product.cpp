#include "codegen/cpu/arithmetic/hardware_product.h"

#include <array>
#include <bit>
#include <cstring>

#include "codegen/cpu/arithmetic/formats.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

constexpr int kLeastMost = -100;          // of a sum: 2^(kept - most) is a normal f32
constexpr int kFitting = 8;               // terms below 2^27 whose sum fits i32
constexpr float kFittingSum = 0x1.fp30f;  // of two such sums, each rounded
constexpr uint32_t kQuietNan = 0x7FFFFFFF;

template <class To, class From>
To lanes_as(From from) {
  return __builtin_convertvector(from, To);
}

}  // namespace

HardwareProduct::HardwareProduct(DType a, DType b, ir::Instruction instruction, int rows,
                                 int columns, int depth)
    : a_dtype_(a),
      b_dtype_(b),
      instruction_(instruction),
      rows_(rows),
      columns_(columns),
      depth_(depth),
      element_bytes_(bytes(a)),
      is_8_bit_(bits(a) == 8),
      is_emulated_(is_8_bit_ && instruction == ir::Instruction::mma) {
  TESSERA_CHECK(depth * element_bytes_ == kMaxDepth, "an instruction takes 32 bytes of k");
  const int blocks = (columns + kColumnsTogether - 1) / kColumnsTogether;
  const auto left = static_cast<size_t>(rows * depth);
  const auto right = static_cast<size_t>(blocks * depth);
  a_.raw.resize(left);
  a_.factors.resize(left);
  a_.lines.resize(static_cast<size_t>(rows));
  b_.raw.resize(right * kColumnsTogether);
  b_.factors.resize(right);
  b_.lines.resize(static_cast<size_t>(blocks));
}

Factor HardwareProduct::factor(DType dtype, uint32_t raw) const {
  return is_emulated_ ? widened_factor_of(dtype, raw) : factor_of(dtype, raw);
}

void HardwareProduct::add(int row, int block, uint32_t* even, uint32_t* odd) {
  if (!is_decoded_) decode();
  Sums sums;
  std::memcpy(&sums.even, even, sizeof sums.even);
  std::memcpy(&sums.odd, odd, sizeof sums.odd);
  if (!is_emulated_) {
    add(row, block, 0, depth_, is_8_bit_ ? kShortSums : kLongSums, sums);
  } else {
    Sums part = {};
    add(row, block, 0, depth_ / 2, kLongSums, part);
    add(row, block, depth_ / 2, depth_ / 2, kLongSums, part);
    const auto total = [](Words before, Words of_part) {
      const Floats sum = std::bit_cast<Floats>(of_part) + std::bit_cast<Floats>(before);
      Words result;
      for (int i = 0; i < 4; ++i) result[i] = std::bit_cast<uint32_t>(F32::encode(sum[i]));
      return result;
    };
    sums = {total(sums.even, part.even), total(sums.odd, part.odd)};
  }
  std::memcpy(even, &sums.even, sizeof sums.even);
  std::memcpy(odd, &sums.odd, sizeof sums.odd);
}

void HardwareProduct::add(int row, int block, int first, int count, SumRule rule,
                          Sums& sums) const {
  const Line left_line = a_.lines[static_cast<size_t>(row)];
  const Line right_line = b_.lines[static_cast<size_t>(block)];
  if (rule.stored == 23 && ((left_line.is_zero && !right_line.is_special) ||
                            (right_line.is_zero && !left_line.is_special))) {
    const auto kept = [](Words before) {  // padding: the sums stay
      const Words is_zero = std::bit_cast<Words>(before << 1 == 0);
      const Words is_nan = std::bit_cast<Words>(std::bit_cast<Ints>(before & ~kSignBit) >
                                                static_cast<int32_t>(kExponent));
      return (before & ~is_zero & ~is_nan) | (is_nan & kQuietNan);
    };
    sums = {kept(sums.even), kept(sums.odd)};
    return;
  }
  if (left_line.is_special && left_line.has_nan) {
    sums = {Words{} + kQuietNan, Words{} + kQuietNan};
    return;
  }
  const Sums before = sums;
  Sums wrong = {};
  const Left* const left = &a_.factors[static_cast<size_t>(row * depth_ + first)];
  const Right* const right = &b_.factors[static_cast<size_t>(block * depth_ + first)];
  switch (count) {
    case 8:
      add_quickly<8>(left, right, rule, sums, wrong);
      break;
    case 16:
      add_quickly<16>(left, right, rule, sums, wrong);
      break;
    default:
      add_quickly<32>(left, right, rule, sums, wrong);
  }
  if (left_line.is_plain() && right_line.is_plain() && !any_lane(wrong.even | wrong.odd)) return;
  add_carefully(row, block, first, count, rule, before, wrong, sums);
}

/// Sets `wrong` where a sum is none of this function's: not zero in lanes of such sums.
template <int kCount>
void HardwareProduct::add_quickly(const Left* left, const Right* right, SumRule rule, Sums& sums,
                                  Sums& wrong) const {
  // The exponents of the sums before, then the largest of all terms, biased by 127.
  const Words exponents = (sums.even >> 23 & 0xFF) | (sums.odd >> 7 & 0xFF0000);
  Shorts most = std::bit_cast<Shorts>(exponents);
  for (int k = 0; k < kCount; ++k) {
    const Shorts lead = left[k].lead + right[k].lead;
    most = most < lead ? lead : most;
  }
  constexpr int16_t kLeast = kLeastMost + kBiasOfF32;
  const Shorts least = Shorts{} + kLeast;
  const Words is_extreme = std::bit_cast<Words>((most < least) | (most >= kExponentOfInfinity));
  const Words top = std::bit_cast<Words>(most < least ? least : most);

  const auto of_columns = [&](Floats Right::*column, Words before, Words exponent,
                              Words& is_wrong) {
    const auto kept = static_cast<uint32_t>(rule.kept);
    const Floats scale = std::bit_cast<Floats>((kept + 2 * kBiasOfF32 - exponent) << 23);
    Words terms = std::bit_cast<Words>(lanes_as<Ints>(std::bit_cast<Floats>(before) * scale));
    Words others = {};
    for (int k = 0; k < kFitting; ++k) {
      terms += std::bit_cast<Words>(lanes_as<Ints>(left[k].value * right[k].*column * scale));
    }
    for (int k = kFitting; k < kCount; ++k) {
      others += std::bit_cast<Words>(lanes_as<Ints>(left[k].value * right[k].*column * scale));
    }
    if (kCount > kFitting) {
      const Floats sum = lanes_as<Floats>(std::bit_cast<Ints>(terms)) +
                         lanes_as<Floats>(std::bit_cast<Ints>(others));
      is_wrong |= std::bit_cast<Words>((sum >= kFittingSum) | (sum <= -kFittingSum));
    }
    // Truncated to 24 bits: rounded to nearest, and one back where that is more.
    const Words total = terms + others;
    const Words sign = std::bit_cast<Words>(std::bit_cast<Ints>(total) >> 31);
    const Words size = (total ^ sign) - sign;
    const Floats rounded = lanes_as<Floats>(std::bit_cast<Ints>(size));
    const Words error = size - std::bit_cast<Words>(lanes_as<Ints>(rounded));
    const Words is_more = std::bit_cast<Words>(std::bit_cast<Ints>(error) >> 31);
    Words result = std::bit_cast<Words>(rounded) + is_more;
    if (rule.stored < 23) result &= ~0u << (23 - rule.stored);
    result |= sign & kSignBit;
    return std::bit_cast<Words>(std::bit_cast<Floats>(result) *
                                std::bit_cast<Floats>((exponent - kept) << 23));
  };
  wrong = {is_extreme << 16, is_extreme & 0xFFFF0000};
  const Words even = of_columns(&Right::even, sums.even, top & 0xFFFF, wrong.even);
  const Words odd = of_columns(&Right::odd, sums.odd, top >> 16, wrong.odd);
  if (any_lane(is_extreme)) {
    // Where all terms are zero, so is the sum.
    constexpr int16_t kNone = kLeadOfZero / 2;
    Shorts lead_of_products = Shorts{} + kNone;
    for (int k = 0; k < kCount; ++k) {
      const Shorts lead = left[k].lead + right[k].lead;
      lead_of_products = lead_of_products < lead ? lead : lead_of_products;
    }
    const Words has_none = std::bit_cast<Words>(lead_of_products == kNone);
    wrong.even &= ~(has_none << 16 & std::bit_cast<Words>(sums.even << 1 == 0));
    wrong.odd &= ~(has_none & 0xFFFF0000 & std::bit_cast<Words>(sums.odd << 1 == 0));
  }
  sums = {even, odd};
}

/// Completes the sums of a block where factors are extreme, infinite or NaN, or where sums are `wrong`.
void HardwareProduct::add_carefully(int row, int block, int first, int count, SumRule rule,
                                    const Sums& before, const Sums& wrong, Sums& sums) const {
  const Line left_line = a_.lines[static_cast<size_t>(row)];
  const Line right_line = b_.lines[static_cast<size_t>(block)];
  const uint32_t all_wrong = left_line.is_extreme || right_line.is_extreme ? ~0u : 0u;
  Sums specials = {};
  if (left_line.is_special || right_line.is_special) {
    specials = add_specials(row, block, first, count);
  }
  const auto complete = [&](Words sum_before, Words special, Words is_wrong, int first_lane,
                            Words& columns) {
    const Words is_open = std::bit_cast<Words>((sum_before & kExponent) == kExponent);
    const Floats total =
        std::bit_cast<Floats>(special) + std::bit_cast<Floats>(sum_before & is_open);
    const Words bits = std::bit_cast<Words>(total);
    const Ints magnitude = std::bit_cast<Ints>(bits & ~kSignBit);
    const Words is_special = std::bit_cast<Words>(magnitude >= kInfinityBits);
    const Words is_nan = std::bit_cast<Words>(magnitude > kInfinityBits);
    columns = (columns & ~is_special) | (is_special & ~is_nan & bits) | (is_nan & kQuietNan);
    const Words is_slow = (is_wrong | all_wrong) & ~is_special;
    if (!any_lane(is_slow)) return;
    for (int i = 0; i < 4; ++i) {
      if (is_slow[i] == 0) continue;
      columns[i] = add_slowly(row, block, first_lane + i, first, count, rule, sum_before[i]);
    }
  };
  complete(before.even, specials.even, wrong.even, 0, sums.even);
  complete(before.odd, specials.odd, wrong.odd, 4, sums.odd);
}

/// Adds the products of the signs of numbers, infinities and NaN.
HardwareProduct::Sums HardwareProduct::add_specials(int row, int block, int first,
                                                    int count) const {
  const float* const left = &a_.kind[static_cast<size_t>(row * depth_)];
  const float* const right = &b_.kind[static_cast<size_t>(block * depth_ * kColumnsTogether)];
  Floats even = {}, odd = {};
  for (int k = first; k < first + count; ++k) {
    Floats columns;
    std::memcpy(&columns, right + k * kColumnsTogether, sizeof columns);
    even += left[k] * columns;
    std::memcpy(&columns, right + k * kColumnsTogether + 4, sizeof columns);
    odd += left[k] * columns;
  }
  return {std::bit_cast<Words>(even), std::bit_cast<Words>(odd)};
}

uint32_t HardwareProduct::add_slowly(int row, int block, int lane, int first, int count,
                                     SumRule rule, uint32_t before) const {
  std::array<Factor, kMaxDepth> left, right;
  for (int k = 0; k < count; ++k) {
    const auto at = static_cast<size_t>(k);
    const int right_at = (block * depth_ + first + k) * kColumnsTogether + lane;
    left.at(at) = factor(a_dtype_, a_.raw[static_cast<size_t>(row * depth_ + first + k)]);
    right.at(at) = factor(b_dtype_, b_.raw[static_cast<size_t>(right_at)]);
  }
  return sum_of_products(before, left.data(), right.data(), count, rule);
}

}  // namespace tessera::codegen::cpu
