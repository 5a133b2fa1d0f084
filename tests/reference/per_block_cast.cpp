#include "tests/reference/per_block_cast.h"

#include <algorithm>
#include <cmath>

#include "tests/reference/numeric.h"

namespace tessera::reference {

CastResult per_block_cast(const test::HostTensor& x, const BlockCastOptions& options) {
  const int64_t num_tokens = x.shape()[0], hidden = x.shape()[1];
  const int64_t height = options.block[0], width = options.block[1];
  const int64_t num_rows = (num_tokens + height - 1) / height;
  const int64_t num_cols = (hidden + width - 1) / width;

  CastResult result;
  result.out = make_codes(options.format, num_tokens, hidden);
  result.out_sf = make_scales(options.sf_layout, num_rows, num_cols);
  for (int64_t block_row = 0; block_row < num_rows; ++block_row) {
    for (int64_t block_col = 0; block_col < num_cols; ++block_col) {
      const int64_t first_row = block_row * height, first_col = block_col * width;
      const int64_t end_row = std::min(first_row + height, num_tokens);
      const int64_t end_col = std::min(first_col + width, hidden);
      float amax = 0;
      for (int64_t t = first_row; t < end_row; ++t) {
        for (int64_t h = first_col; h < end_col; ++h) {
          const float magnitude = std::fabs(element_of(x, t, h));
          if (magnitude > amax) amax = magnitude;  // false for a NaN
        }
      }
      const Scale scale = scale_of(amax, options.format, options.round_sf);
      store_scale(result.out_sf, options.sf_layout, block_row, block_col, scale);
      for (int64_t t = first_row; t < end_row; ++t) {
        for (int64_t h = first_col; h < end_col; ++h) {
          const float value = element_of(x, t, h) * scale.inv;
          store_code(result.out, t, h, encode(options.format, static_cast<double>(value)));
        }
      }
    }
  }
  return result;
}

test::HostTensor per_block_cast_with_precomputed_sf(const test::HostTensor& x,
                                                    const test::HostTensor& sf, DType format,
                                                    const Dims& block) {
  const int64_t num_tokens = x.shape()[0], hidden = x.shape()[1];
  test::HostTensor out = make_codes(format, num_tokens, hidden);
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t h = 0; h < hidden; ++h) {
      const float inv = 1.0F / load_scale(sf, SfLayout::row_major, t / block[0], h / block[1]);
      const float value = element_of(x, t, h) * inv;
      store_code(out, t, h, encode(format, static_cast<double>(value)));
    }
  }
  return out;
}

CastResult per_block_cast_lossless(const test::HostTensor& x, const test::HostTensor& x_sf,
                                   const LosslessOptions& options) {
  const int64_t num_tokens = x.shape()[0], hidden = hidden_of(x);
  const Dims &in = options.x_block, &block = options.out_block;
  const int64_t num_rows = (num_tokens + block[0] - 1) / block[0];
  const int64_t num_cols = (hidden + block[1] - 1) / block[1];
  const auto exponent_of = [&](int64_t row, int64_t col) {  // of the block of x that holds it
    const float sf = load_scale(x_sf, options.x_sf_layout, row / in[0], col / in[1]);
    return static_cast<int>(bits_of(sf) >> 23 & 255);
  };

  CastResult result;
  result.out = make_codes(DType::e4m3, num_tokens, hidden);
  result.out_sf = make_scales(options.sf_layout, num_rows, num_cols);
  for (int64_t i = 0; i < num_rows * num_cols; ++i) {
    const int64_t first_row = i / num_cols * block[0], first_col = i % num_cols * block[1];
    const int64_t end_row = std::min(first_row + block[0], num_tokens);
    const int64_t end_col = std::min(first_col + block[1], hidden);
    int largest = 0;
    for (int64_t t = first_row; t < end_row; t += in[0]) {
      for (int64_t h = first_col; h < end_col; h += in[1]) {
        largest = std::max(largest, exponent_of(t, h));
      }
    }
    const int exponent = std::max(largest - 6, 0);
    const Scale scale = {float_of(static_cast<uint32_t>(exponent) << 23), 0,
                         static_cast<uint8_t>(exponent)};
    store_scale(result.out_sf, options.sf_layout, i / num_cols, i % num_cols, scale);
    for (int64_t t = first_row; t < end_row; ++t) {
      for (int64_t h = first_col; h < end_col; ++h) {
        const int shift = std::max(exponent_of(t, h) - exponent, -5);
        const auto value = static_cast<double>(element_of(x, t, h));
        store_code(result.out, t, h, encode(DType::e4m3, std::ldexp(value, shift)));
      }
    }
  }
  return result;
}

}  // namespace tessera::reference
