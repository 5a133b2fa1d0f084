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

/// The bytes of a token by the table of formats: codes, then (in rows: behind the scales) channels in bf16.
struct Bytes {
  int64_t codes, code_bits, group;  // channels with a code, bits of a code, channels of a scale
  int64_t scale_bytes;              // of a token
  int64_t plain = 0;                // channels in bf16
  bool in_rows = false;

  int64_t data() const { return codes * code_bits / 8 + 2 * plain; }
  int64_t code_at(int64_t token, int64_t channel) const {
    return token * pitch() + channel * code_bits / 8;
  }
  int64_t plain_at(int64_t token, int64_t channel) const {
    return token * pitch() + codes * code_bits / 8 + (in_rows ? scale_bytes : 0) +
           2 * (channel - codes);
  }
  int64_t scales_at(int64_t token, int64_t page_size) const {
    return in_rows ? token * pitch() + codes * code_bits / 8
                   : data() * page_size + scale_bytes * token;
  }
  int64_t pitch() const { return data() + (in_rows ? scale_bytes : 0); }
};

Bytes bytes_of(const std::string& format, bool in_rows) {
  if (format == "v32_fp8") return {512, 8, 128, 16, 64, true};
  if (format == "v4_fp8") return {448, 8, 64, 8, 64};
  if (format == "v41_fp8") return {512, 8, 32, 16, 0, in_rows};
  if (format == "v41_fp4") return {512, 4, 16, 32, 0, in_rows};
  if (format == "index_fp8") return {128, 8, 128, 4};
  return {128, 4, 32, 4, 0, in_rows};  // index_fp4
}

/// A row of the cache as bytes.
class Block {
 public:
  Block(HostTensor& cache, int64_t block) : cache_(cache), row_(block * cache.shape()[1]) {}

  void put(int64_t byte, uint64_t bits, int64_t count) {
    for (int64_t i = 0; i < count; ++i) cache_.set_bits(row_ + byte + i, (bits >> (8 * i)) & 0xFF);
  }
  void put_nibble(int64_t byte, bool is_high, uint64_t code) {
    const uint64_t old = cache_.bits(row_ + byte);
    cache_.set_bits(row_ + byte, is_high ? (old & 0x0F) | code << 4 : (old & 0xF0) | code);
  }

 private:
  HostTensor& cache_;
  int64_t row_;
};

uint32_t read(const HostTensor& cache, int64_t block, int64_t byte, int64_t count) {
  uint32_t bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t one = cache.bits(block * cache.shape()[1] + byte + i);
    bits |= static_cast<uint32_t>(one) << (8 * i);
  }
  return bits;
}

/// A group of values: the bits of its scale, and the code of each.
struct Group {
  uint32_t scale = 0;
  std::vector<uint32_t> codes;
};

Group quantised(const std::vector<float>& values, const std::string& format) {
  float largest = 0;
  bool is_finite = true;
  for (const float value : values) {
    largest = std::fmax(largest, std::fabs(value));
    is_finite = is_finite && std::isfinite(value);
  }
  Group group;
  if (format == "v41_fp4") {  // a scale of its own format, and quotients
    const float floor = 6 * std::ldexp(1.0F, -9);
    const float scale = std::fmin(std::fmax(largest, floor) / 6.0F, 448.0F);
    group.scale = is_finite ? encode(DType::e4m3, scale) : nan_code(DType::e4m3);
    const auto divisor = static_cast<float>(decode(DType::e4m3, group.scale));
    for (const float value : values) {
      group.codes.push_back(is_finite ? encode(DType::e2m1, value / divisor) : 0);
    }
    return group;
  }
  const bool is_fp4 = format == "index_fp4", is_pow2 = format != "index_fp8";
  const DType code = is_fp4 ? DType::e2m1 : DType::e4m3;
  const Scale scale = scale_of(largest, code, is_pow2);
  const bool is_float = format == "v32_fp8" || format == "index_fp8";
  group.scale = is_float ? bits_of(scale.sf) : scale.exponent;
  for (const float value : values) group.codes.push_back(encode(code, value * scale.inv));
  return group;
}

float scale_value(const std::string& format, uint32_t bits) {
  if (format == "v41_fp4") return static_cast<float>(decode(DType::e4m3, bits));
  return float_of(format == "v32_fp8" || format == "index_fp8" ? bits : bits << 23);
}

/// Bytes of one scale.
int64_t scale_size(const std::string& format) {
  return format == "v32_fp8" || format == "index_fp8" ? 4 : 1;
}

bool is_there(const HostTensor& cache, int64_t location, int64_t tokens) {
  return location >= 0 && location / tokens < cache.shape()[0];
}

}  // namespace

void rotate_pairs(std::vector<float>& values, int64_t first, const HostTensor& cos_sin,
                  int64_t position, bool halves) {
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

void hadamard_transform(std::vector<float>& values) {
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

int64_t channels_of_format(const std::string& format) {
  if (format == "bf16") return 0;
  const Bytes bytes = bytes_of(format, false);
  return bytes.codes + bytes.plain;
}

int64_t bytes_of_block(const std::string& format, int64_t page_size) {
  const Bytes b = bytes_of(format, false);
  const int64_t bytes = (b.data() + b.scale_bytes) * page_size;
  return format == "v4_fp8" ? (bytes + 575) / 576 * 576 : bytes;
}

std::vector<float> normalized_entry(std::vector<float> values, const HostTensor& norm_weight,
                                    const HostTensor& cos_sin, int64_t position,
                                    const EntryOptions& o) {
  const int64_t normed = ssize(values) == 576 ? 512 : ssize(values);
  const std::vector<float> part(values.begin(), values.begin() + normed);
  const float mean = lane_sum(part, part) / static_cast<float>(normed);
  const float inverse = 1.0f / std::sqrt(mean + o.norm_eps);
  for (int64_t i = 0; i < normed; ++i) {
    at(values, i) = at(values, i) * inverse * number(norm_weight, i);
  }
  rotate_pairs(values, ssize(values) - 64, cos_sin, position, o.halves);
  if (o.hadamard) hadamard_transform(values);
  return values;
}

void store_entry(const std::vector<float>& values, HostTensor& cache, int64_t location,
                 const EntryOptions& o) {
  const bool is_plain = o.format == "bf16";
  const int64_t tokens = is_plain ? 1 : o.page_size;
  if (!is_there(cache, location, tokens)) return;
  if (is_plain) {
    for (int64_t i = 0; i < ssize(values); ++i) {
      const uint32_t code = encode(DType::bf16, values[static_cast<size_t>(i)]);
      cache.set_bits(location * ssize(values) + i, code);
    }
    return;
  }
  std::vector<float> rounded = values;
  if (o.rounds) {
    for (float& value : rounded) value = rounded_to_bf16(value);
  }
  const Bytes b = bytes_of(o.format, o.in_rows);
  const int64_t token = location % tokens, size = scale_size(o.format);
  Block block(cache, location / tokens);
  block.put(b.scales_at(token, tokens), 0, b.scale_bytes);
  for (int64_t first = 0; first < b.codes; first += b.group) {
    const auto begin = rounded.begin() + first;
    const Group group = quantised({begin, begin + b.group}, o.format);
    block.put(b.scales_at(token, tokens) + first / b.group * size, group.scale, size);
    for (int64_t i = 0; i < b.group; ++i) {
      const uint32_t code = group.codes[static_cast<size_t>(i)];
      const int64_t byte = b.code_at(token, first + i);
      if (b.code_bits == 8) {
        block.put(byte, code, 1);
      } else {
        block.put_nibble(byte, (first + i) % 2 == 1, code);
      }
    }
  }
  for (int64_t i = b.codes; i < b.codes + b.plain; ++i) {
    block.put(b.plain_at(token, i), encode(DType::bf16, at(rounded, i)), 2);
  }
}

std::vector<float> load_entry(const HostTensor& cache, int64_t location, int64_t channels,
                              const EntryOptions& o) {
  const bool is_plain = o.format == "bf16";
  const int64_t tokens = is_plain ? 1 : o.page_size;
  std::vector<float> values(static_cast<size_t>(channels), 0.0F);
  if (!is_there(cache, location, tokens)) return values;
  if (is_plain) {
    for (int64_t i = 0; i < channels; ++i) at(values, i) = number(cache, location * channels + i);
    return values;
  }
  const Bytes b = bytes_of(o.format, o.in_rows);
  const int64_t token = location % tokens, block = location / tokens, size = scale_size(o.format);
  for (int64_t i = 0; i < b.codes; ++i) {
    const int64_t at_scale = b.scales_at(token, tokens) + i / b.group * size;
    const float scale = scale_value(o.format, read(cache, block, at_scale, size));
    const uint32_t byte = read(cache, block, b.code_at(token, i), 1);
    const float code =
        b.code_bits == 8
            ? static_cast<float>(decode(DType::e4m3, byte))
            : static_cast<float>(decode(DType::e2m1, i % 2 == 0 ? byte & 15 : byte >> 4));
    at(values, i) = o.format == "index_fp8" ? code * scale : rounded_to_bf16(code * scale);
  }
  for (int64_t i = b.codes; i < channels; ++i) {
    const uint32_t bits = read(cache, block, b.plain_at(token, i), 2);
    at(values, i) = static_cast<float>(decode(DType::bf16, bits));
  }
  return values;
}

}  // namespace tessera::reference
