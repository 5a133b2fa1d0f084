#include "kernels/serving/cast/parts/random_round.h"

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

Value RandomBits::to_e4m3(const Value& value, int64_t j) const {
  const int64_t shift = 8 * j;
  const Value random = shift == 0 ? low_ : (low_ << shift) | (low_ >> (32 - shift));
  auto magnitude = k_.let("magnitude", magnitude_bits(min(abs(value), 448.0f)));
  auto biased = k_.let("biased", i32(magnitude >> kExponentBits));
  auto significand = (magnitude & 0x7FFFFF) | select(biased > 0, u32(0x800000), u32(0));
  auto exponent = k_.let("exponent", max(biased, 1));
  auto dropped = k_.let("dropped", max(kLeastNormal - exponent, 0) + kDropped);
  // floor(significand / 2^dropped + random / 2^32): the whole part, and the carry out of the 32 bits of the
  // fraction. Beyond 55 dropped bits the fraction is 0.
  auto fraction =
      k_.let("fraction", significand << max(32 - dropped, 0) >> min(max(dropped - 32, 0), 31));
  auto sum = k_.let("sum", fraction + random);
  auto code = i32((significand >> min(dropped, 31)) + select(sum < fraction, u32(1), u32(0)));
  auto step = reinterpret(DType::f32, u32(max(exponent, kLeastNormal) - 3) << kExponentBits);
  auto rounded = copysign(f32(code) * step, value);
  return select(is_nan(value), value, rounded);
}

}  // namespace tessera::kernels::serving
