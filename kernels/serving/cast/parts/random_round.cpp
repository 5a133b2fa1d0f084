#include "kernels/serving/cast/parts/random_round.h"

#include <vector>

#include "kernels/quant/parts/byte_perm.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

constexpr uint32_t kSign = 0x80000000, kInfinity = 0x7F800000;
constexpr uint32_t kKeptByBf16 = 0xFFFF0000, kLargestBf16 = 0x7F7F0000;
constexpr uint32_t kFactors[] = {0x5671D42B, 0x9995E499, 0xACE1B8A5, 0xE153538D};
constexpr uint32_t kMixer = 0x7FEB352D, kLowFactor = 0x846CA68B, kHighFactor = 0xD35A2D97;
constexpr int kExponentBits = 23;
// e4m3 keeps 4 of the 24 bits of a significand; below 2^-6, biased exponent 121, one less per exponent.
constexpr int kDropped = 20, kLeastNormal = 121;

Value magnitude_bits(const Value& value) {
  return reinterpret(DType::u32, value) & 0x7FFFFFFF;
}

}  // namespace

RandomBits::RandomBits(Builder& k, const Ref& values, const Value& quad, const Value& seed)
    : k_(k) {
  auto hash = k.var(DType::u32, u32(quad) + seed, "hash");
  for (int64_t j = 0; j < 4; ++j) {
    hash = hash + reinterpret(DType::u32, values(j)) * kFactors[j];
  }
  hash = hash ^ (hash >> 23);
  hash = hash * kMixer;
  hash = hash ^ (hash >> 16);
  const auto stream = [&](const char* name, uint32_t factor) {
    auto product = k.let("product", hash * factor);
    return k.let(name, product ^ (product >> 11));
  };
  low_ = stream("low", kLowFactor);
  high_ = stream("high", kHighFactor);
}

Value RandomBits::to_bf16(const Value& value, int64_t j) const {
  const Value& word = j < 2 ? low_ : high_;
  const Value random = j % 2 == 0 ? word & 0xFFFF : word >> 16;
  auto magnitude = k_.let("magnitude", magnitude_bits(value));
  auto kept = min((magnitude + random) & kKeptByBf16, kLargestBf16);
  auto rounded = reinterpret(DType::f32, kept | (reinterpret(DType::u32, value) & kSign));
  return select(magnitude >= kInfinity, value, rounded);
}

Value RandomBits::to_e4m3(const Ref& values) const {
  std::vector<Value> codes, tops;
  for (int64_t j = 0; j < 4; ++j) {
    const int64_t shift = 8 * j;
    const Value random = shift == 0 ? low_ : (low_ << shift) | (low_ >> (32 - shift));
    auto magnitude = k_.let("magnitude", min(abs(values(j)), 448.0f));
    // One less than the exponent: the significand with its leading bit is a product away.
    auto below = k_.let("below", reinterpret(DType::u32, magnitude * 0.5f) >> kExponentBits);
    auto significand = reinterpret(DType::u32, magnitude) - below * (1u << kExponentBits);
    auto normal = k_.let("normal", max(i32(below), kLeastNormal - 1));
    auto dropped = k_.let("dropped", min(normal + (kDropped - i32(below)), 63));
    // floor(significand / 2^dropped + random / 2^32) in 64 bits, 32 of them the fraction, less the exponent of
    // the least normal number. Beyond 55 dropped bits nothing is left.
    const Value bias = cast(DType::u64, random) - ((kLeastNormal - 1) * 8ull << 32);
    auto sum = ((cast(DType::u64, significand) << 32) >> dropped) + bias;
    codes.push_back(k_.let("code", u32(sum >> 32) + u32(normal * 8)));
    tops.push_back(reinterpret(DType::u32, values(j)));
  }
  const auto four = [&](const std::vector<Value>& words, uint32_t pair) {
    auto low = byte_perm(k_, words[0], words[1], u32(pair));
    auto high = byte_perm(k_, words[2], words[3], u32(pair));
    return byte_perm(k_, low, high, u32(0x5410));
  };
  // One after another: compilers would make the statements of operands in different orders.
  const Value magnitudes = four(codes, 0x40);
  const Value signs = four(tops, 0x73) & 0x80808080;
  auto word = k_.var(DType::u32, magnitudes | signs, "word");
  Value any = values(0);
  for (int64_t j = 1; j < 4; ++j) {
    const Value next = values(j);
    any = any + next;
  }
  k_.if_(is_nan(any), [&] {
    for (int64_t j = 0; j < 4; ++j) {
      const uint32_t others = ~(0xFFu << (8 * j)), nan = 0x7Fu << (8 * j);
      word = select(is_nan(values(j)), (word & others) | nan, word);
    }
  });
  return k_.let("four_codes", word);
}

}  // namespace tessera::kernels::serving
