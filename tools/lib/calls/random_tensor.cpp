#include "tools/lib/calls/random_tensor.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace tessera::tools {
namespace {

constexpr int64_t kBlock = 1'000'003;  // prime: repeats never line up with rows

/// Sign, exponent and mantissa drawn separately, so that every float format gets exact values of
/// its own.
uint64_t random_float(uint64_t random, int mantissa_bits, int exponent_bits) {
  const uint64_t bias = (uint64_t{1} << (exponent_bits - 1)) - 1;
  const uint64_t mantissa = random & ((uint64_t{1} << mantissa_bits) - 1);
  const uint64_t exponent = bias - 3 + (random >> 40) % 5;  // 2^-3 to 2^1
  const uint64_t sign = random >> 63;
  return sign << (mantissa_bits + exponent_bits) | exponent << mantissa_bits | mantissa;
}

uint64_t random_bits(DType dtype, uint64_t random) {
  switch (dtype) {
    case DType::f64:
      return random_float(random, 52, 11);
    case DType::f32:
      return random_float(random, 23, 8);
    case DType::f16:
      return random_float(random, 10, 5);
    case DType::bf16:
      return random_float(random, 7, 8);
    case DType::e4m3:
      return random_float(random, 3, 4);
    case DType::e5m2:
      return random_float(random, 2, 5);
    case DType::e2m1:
    case DType::i8:
    case DType::u8:
      return random & 0xFF;
    case DType::i16:
    case DType::i32:
    case DType::i64:
      return random % 16 - 8;
    case DType::u16:
    case DType::u32:
    case DType::u64:
      return random % 16;
    case DType::boolean:
      return random & 1;
  }
  return 0;
}

}  // namespace

HostBuffer random_tensor(DType dtype, int64_t count, uint64_t seed) {
  const int64_t element = bytes(dtype);
  HostBuffer data(count * element);
  std::mt19937_64 engine(seed);
  const int64_t block = std::min(count, kBlock);
  for (int64_t i = 0; i < block; ++i) {
    const uint64_t bits = random_bits(dtype, engine());
    std::memcpy(data.data() + i * element, &bits, static_cast<size_t>(element));
  }
  for (int64_t i = block; i < count; i += block) {
    const int64_t run = std::min(block, count - i);
    std::memcpy(data.data() + i * element, data.data(), static_cast<size_t>(run * element));
  }
  return data;
}

}  // namespace tessera::tools
