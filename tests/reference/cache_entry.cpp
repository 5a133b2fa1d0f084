#include "tests/reference/cache_entry.h"

#include <algorithm>
#include <cmath>

#include "tests/reference/lane_sum.h"
#include "tests/reference/numeric.h"
#include "tests/reference/scale.h"

namespace tessera::reference {
namespace {

using test::HostTensor;

int64_t ssize(const std::vector<float>& values) {
  return static_cast<int64_t>(values.size());
}

float& at(std::vector<float>& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}

float number(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

float rounded_to_bf16(float value) {
  return static_cast<float>(decode(DType::bf16, encode(DType::bf16, value)));
}

void rotate(std::vector<float>& values, const HostTensor& cos_sin, int64_t position, bool halves) {
  const int64_t first = ssize(values) - 64;
  const bool is_known = position >= 0 && position < cos_sin.shape()[0];
  for (int64_t j = 0; j < 32; ++j) {
    const int64_t row = position * 64;
    const float c = is_known ? number(cos_sin, row + (halves ? j : 2 * j)) : 1;
    const float s = is_known ? number(cos_sin, row + (halves ? 32 + j : 2 * j + 1)) : 0;
    const float a = at(values, first + 2 * j), b = at(values, first + 2 * j + 1);
    at(values, first + 2 * j) = std::fma(a, c, -(b * s));
    at(values, first + 2 * j + 1) = std::fma(a, s, b * c);
  }
}

void transform(std::vector<float>& values) {
  for (int64_t distance = 1; distance < ssize(values); distance *= 2) {
    const std::vector<float> before = values;
    for (int64_t i = 0; i < ssize(values); ++i) {
      const float mine = before[static_cast<size_t>(i)];
      const float other = before[static_cast<size_t>(i ^ distance)];
      at(values, i) = (i & distance) == 0 ? mine + other : other - mine;
    }
  }
  for (float& value : values) value *= float_of(0x3DB504F3);
}

/// The block and the place in it.
struct Place {
  int64_t block, offset;
};

class Bytes {
 public:
  Bytes(HostTensor& cache, Place place) : cache_(cache), row_(place.block * cache.shape()[1]) {}

  void put(int64_t byte, uint64_t bits, int64_t count) {
    for (int64_t i = 0; i < count; ++i) cache_.set_bits(row_ + byte + i, (bits >> (8 * i)) & 0xFF);
  }

 private:
  HostTensor& cache_;
  int64_t row_;
};

float largest_of(const std::vector<float>& values, int64_t first, int64_t count) {
  float largest = 0;
  for (int64_t i = first; i < first + count; ++i) {
    largest = std::fmax(largest, std::fabs(values[static_cast<size_t>(i)]));
  }
  return largest;
}

void store_v4(const std::vector<float>& values, Bytes& bytes, int64_t offset, int64_t page_size) {
  for (int64_t group = 0; group < 7; ++group) {
    const Scale scale = scale_of(largest_of(values, 64 * group, 64), DType::e4m3, true);
    for (int64_t i = 64 * group; i < 64 * group + 64; ++i) {
      const float value = values[static_cast<size_t>(i)] * scale.inv;
      bytes.put(576 * offset + i, encode(DType::e4m3, value), 1);
    }
    bytes.put(576 * page_size + 8 * offset + group, scale.exponent, 1);
  }
  bytes.put(576 * page_size + 8 * offset + 7, 0, 1);
  for (int64_t i = 0; i < 64; ++i) {
    const float value = values[static_cast<size_t>(448 + i)];
    bytes.put(576 * offset + 448 + 2 * i, encode(DType::bf16, value), 2);
  }
}

void store_index_fp8(const std::vector<float>& values, Bytes& bytes, int64_t offset,
                     int64_t page_size) {
  const Scale scale = scale_of(largest_of(values, 0, 128), DType::e4m3, false);
  for (int64_t i = 0; i < 128; ++i) {
    const float value = values[static_cast<size_t>(i)] * scale.inv;
    bytes.put(128 * offset + i, encode(DType::e4m3, value), 1);
  }
  bytes.put(128 * page_size + 4 * offset, bits_of(scale.sf), 4);
}

void store_index_fp4(const std::vector<float>& values, Bytes& bytes, int64_t offset,
                     int64_t page_size) {
  for (int64_t group = 0; group < 4; ++group) {
    const Scale scale = scale_of(largest_of(values, 32 * group, 32), 6.0f, 1e-4f, true);
    const auto code = [&](int64_t i) {
      return encode(DType::e2m1, values[static_cast<size_t>(i)] * scale.inv);
    };
    for (int64_t i = 32 * group; i < 32 * group + 32; i += 2) {
      bytes.put(64 * offset + i / 2, code(i) | code(i + 1) << 4, 1);
    }
    bytes.put(64 * page_size + 4 * offset + group, scale.exponent, 1);
  }
}

}  // namespace

std::vector<float> normalized_entry(std::vector<float> values, const HostTensor& norm_weight,
                                    const HostTensor& cos_sin, int64_t position,
                                    const EntryOptions& o) {
  const float mean = lane_sum(values, values) / static_cast<float>(values.size());
  const float inverse = 1.0f / std::sqrt(mean + o.norm_eps);
  for (int64_t i = 0; i < ssize(values); ++i) {
    at(values, i) = at(values, i) * inverse * number(norm_weight, i);
  }
  rotate(values, cos_sin, position, o.halves);
  if (o.hadamard) transform(values);
  return values;
}

void store_entry(const std::vector<float>& values, HostTensor& cache, int64_t location,
                 const EntryOptions& o) {
  const bool is_plain = o.format == "bf16";
  const int64_t tokens = is_plain ? 1 : o.page_size;
  if (location < 0 || location / tokens >= cache.shape()[0]) return;
  if (is_plain) {
    for (int64_t i = 0; i < ssize(values); ++i) {
      const uint32_t code = encode(DType::bf16, values[static_cast<size_t>(i)]);
      cache.set_bits(location * ssize(values) + i, code);
    }
    return;
  }
  std::vector<float> rounded = values;
  for (float& value : rounded) value = rounded_to_bf16(value);
  const int64_t offset = location % tokens;
  Bytes bytes(cache, {location / tokens, offset});
  if (o.format == "v4_fp8") store_v4(rounded, bytes, offset, tokens);
  if (o.format == "index_fp8") store_index_fp8(rounded, bytes, offset, tokens);
  if (o.format == "index_fp4") store_index_fp4(rounded, bytes, offset, tokens);
}

}  // namespace tessera::reference
