#include "tests/reference/per_token_cast.h"

#include <algorithm>
#include <cmath>

#include "tests/reference/numeric.h"

namespace tessera::reference {

int64_t hidden_of(const test::HostTensor& x) {
  return x.dtype() == DType::i8 ? 2 * x.shape()[1] : x.shape()[1];
}

float element_of(const test::HostTensor& x, int64_t row, int64_t col) {
  if (x.dtype() != DType::i8) return static_cast<float>(x.value(row * x.shape()[1] + col));
  const auto byte = static_cast<uint32_t>(x.bits(row * x.shape()[1] + col / 2));
  return static_cast<float>(decode(DType::e2m1, col % 2 == 0 ? byte & 0xF : byte >> 4));
}

void store_code(test::HostTensor& out, int64_t row, int64_t col, uint32_t code) {
  if (out.dtype() != DType::i8) {
    out.set_bits(row * out.shape()[1] + col, code);
    return;
  }
  const int64_t element = row * out.shape()[1] + col / 2;
  const auto byte = static_cast<uint32_t>(out.bits(element));
  out.set_bits(element, col % 2 == 0 ? (byte & 0xF0) | code : (byte & 0x0F) | code << 4);
}

test::HostTensor make_codes(DType format, int64_t num_tokens, int64_t hidden) {
  return format == DType::e2m1 ? test::HostTensor(DType::i8, {num_tokens, hidden / 2})
                               : test::HostTensor(DType::e4m3, {num_tokens, hidden});
}

CastResult per_token_cast(const test::HostTensor& x, const test::HostTensor* x_sf,
                          const CastOptions& options) {
  const int64_t num_tokens = x.shape()[0];
  const int64_t hidden = hidden_of(x);
  const int64_t group = options.num_per_channels;
  const int64_t num_groups = (hidden + group - 1) / group;

  CastResult result;
  result.out = make_codes(options.format, num_tokens, hidden);
  result.out_sf = make_scales(options.sf_layout, num_tokens, num_groups);

  const auto input_scale = [&](int64_t row, int64_t col) {
    if (x_sf == nullptr) return 1.0F;
    const Dims& block = *options.x_block_size;
    return load_scale(*x_sf, options.x_sf_layout, row / block[0], col / block[1]);
  };
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t g = 0; g < num_groups; ++g) {
      const int64_t begin = g * group;
      const int64_t end = std::min(begin + group, hidden);
      float amax = 0;
      for (int64_t h = begin; h < end; ++h) {
        const float magnitude = std::fabs(element_of(x, t, h)) * input_scale(t, h);
        if (magnitude > amax) amax = magnitude;  // false for a NaN
      }
      const Scale scale = scale_of(amax, options.format, options.round_sf);
      store_scale(result.out_sf, options.sf_layout, t, g, scale);
      for (int64_t h = begin; h < end; ++h) {
        const float factor = input_scale(t, h) * scale.inv;
        const float value = element_of(x, t, h) * factor;
        store_code(result.out, t, h, encode(options.format, static_cast<double>(value)));
      }
    }
  }
  return result;
}

test::HostTensor per_token_cast_with_precomputed_sf(const test::HostTensor& x,
                                                    const test::HostTensor& sf, DType format,
                                                    int64_t num_per_channels) {
  const int64_t num_tokens = x.shape()[0], hidden = x.shape()[1];
  test::HostTensor out = make_codes(format, num_tokens, hidden);
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t h = 0; h < hidden; ++h) {
      const float scale = load_scale(sf, SfLayout::row_major, t, h / num_per_channels);
      const float inv = 1.0F / scale;
      const float value = element_of(x, t, h) * inv;
      store_code(out, t, h, encode(format, static_cast<double>(value)));
    }
  }
  return out;
}

test::HostTensor cast_back(const test::HostTensor& x, const test::HostTensor& x_sf, SfLayout layout,
                           const Dims& block, DType out_dtype) {
  const int64_t num_tokens = x.shape()[0], hidden = hidden_of(x);
  test::HostTensor out(out_dtype, {num_tokens, hidden});
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t h = 0; h < hidden; ++h) {
      const float scale = load_scale(x_sf, layout, t / block[0], h / block[1]);
      const float value = element_of(x, t, h) * scale;
      out.set_bits(t * hidden + h, encode(out_dtype, static_cast<double>(value)));
    }
  }
  return out;
}

test::HostTensor unpack_from_e2m1fn_x2(const test::HostTensor& x, DType out_dtype) {
  Dims shape = x.shape();
  shape[shape.rank - 1] *= 2;
  test::HostTensor out(out_dtype, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto byte = static_cast<uint32_t>(x.bits(i));
    out.set_bits(2 * i, encode(out_dtype, decode(DType::e2m1, byte & 15)));
    out.set_bits(2 * i + 1, encode(out_dtype, decode(DType::e2m1, byte >> 4)));
  }
  return out;
}

}  // namespace tessera::reference
