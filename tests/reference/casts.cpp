#include "tests/reference/casts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tests/reference/numeric.h"
#include "tests/reference/scale.h"

namespace tessera::reference {
namespace {

using test::HostTensor;

float number(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

/// The bits of an f32 or bf16 element as f32, those of NaN too.
uint32_t f32_bits(const HostTensor& x, int64_t element) {
  const auto bits = static_cast<uint32_t>(x.bits(element));
  return x.dtype() == DType::bf16 ? bits << 16 : bits;
}

/// The two random words of four neighbours.
std::array<uint32_t, 2> random_words(const HostTensor& x, int64_t quad, uint32_t seed) {
  constexpr std::array<uint32_t, 4> kFactors = {0x5671D42B, 0x9995E499, 0xACE1B8A5, 0xE153538D};
  uint32_t h = static_cast<uint32_t>(quad) + seed;
  for (size_t j = 0; j < 4; ++j) {
    h += f32_bits(x, 4 * quad + static_cast<int64_t>(j)) * kFactors[j];
  }
  h ^= h >> 23;
  h *= 0x7FEB352D;
  h ^= h >> 16;
  uint32_t first = h * 0x846CA68B, second = h * 0xD35A2D97;
  first ^= first >> 11;
  second ^= second >> 11;
  return {first, second};
}

float to_bf16(float value, uint32_t random) {
  if (!std::isfinite(value)) return value;
  const uint64_t sum = uint64_t{bits_of(std::fabs(value))} + random;
  const auto kept = static_cast<uint32_t>(std::min<uint64_t>(sum >> 16, 0x7F7F));
  return std::copysign(float_of(kept << 16), value);
}

/// The magnitude is a multiple of 2^-9 below 2^-6, else of an eighth of its power of two; the part that is
/// left over, in units of 2^-32 of that step, is rounded up where the random word reaches it.
float to_e4m3(float value, uint32_t random) {
  if (std::isnan(value)) return value;
  const double magnitude = std::min(static_cast<double>(std::fabs(value)), 448.0);
  if (magnitude == 0) return value;
  // Subnormal numbers have the exponent of the least normal one.
  const int exponent = std::max(std::ilogb(magnitude), -126);
  const double step = std::ldexp(1.0, std::max(exponent, -6) - 3);
  const int dropped = 20 + std::max(-6 - exponent, 0);  // bits of the significand
  if (dropped > 55) return std::copysign(0.0F, value);
  const auto significand = static_cast<uint64_t>(std::ldexp(magnitude, 23 - exponent));
  const auto added =
      static_cast<uint64_t>(std::floor(std::ldexp(static_cast<double>(random), dropped - 32)));
  const uint64_t code = (significand + added) >> dropped;
  return static_cast<float>(
      std::copysign(static_cast<double>(code) * step, static_cast<double>(value)));
}

}  // namespace

HostTensor cast(const HostTensor& x, const PlainCastOptions& o) {
  HostTensor out(o.out_dtype, x.shape());
  for (int64_t i = 0; i < x.size(); ++i) {
    if (!o.stochastic) {
      out.set_bits(i, encode(o.out_dtype, x.value(i)));
      continue;
    }
    const std::array<uint32_t, 2> words = random_words(x, i / 4, o.seed);
    const auto j = static_cast<uint32_t>(i % 4);
    float value = number(x, i);
    if (o.out_dtype == DType::bf16) {
      value = to_bf16(value, words[j / 2] >> (j % 2 * 16) & 0xFFFF);
    } else {
      const uint32_t turned = j == 0 ? words[0] : words[0] << 8 * j | words[0] >> (32 - 8 * j);
      value = to_e4m3(value, turned);
    }
    out.set_bits(i, encode(o.out_dtype, static_cast<double>(value)));
  }
  return out;
}

HostTensor per_token_cast_and_cast_back(const HostTensor& x, const RoundTripOptions& o) {
  HostTensor out = x;
  const float largest = o.format == DType::e2m1 ? 6.0F : 448.0F;
  for (int64_t first = 0; first < x.size(); first += o.num_per_channels) {
    float amax = 0;
    for (int64_t i = first; i < first + o.num_per_channels; ++i) {
      if (std::fabs(number(x, i)) > amax) amax = std::fabs(number(x, i));
    }
    Scale scale = scale_of(amax, o.format, o.round_sf);
    if (o.e4m3_sf) {
      const float clamped = std::max(amax, largest / 512);
      scale.sf =
          std::isinf(amax)
              ? amax
              : static_cast<float>(decode(
                    DType::e4m3, encode(DType::e4m3, static_cast<double>(clamped / largest))));
      scale.inv = 1.0F / scale.sf;
    }
    for (int64_t i = first; i < first + o.num_per_channels; ++i) {
      const float scaled = number(x, i) * scale.inv;
      const auto code =
          static_cast<float>(decode(o.format, encode(o.format, static_cast<double>(scaled))));
      out.set_bits(i, encode(x.dtype(), static_cast<double>(code * scale.sf)));
    }
  }
  return out;
}

}  // namespace tessera::reference
