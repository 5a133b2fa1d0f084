#include "tests/reference/per_channel_cast.h"

#include <algorithm>
#include <cmath>

#include "tests/reference/numeric.h"
#include "tests/reference/scale.h"

namespace tessera::reference {

ChannelCastResult per_channel_cast(const test::HostTensor& x, int64_t num_per_tokens,
                                   bool round_sf) {
  const int64_t num_tokens = x.shape()[0], hidden = x.shape()[1];
  const int64_t num_runs = (num_tokens + num_per_tokens - 1) / num_per_tokens;
  ChannelCastResult result;
  result.out = test::HostTensor(DType::e4m3, {num_tokens, hidden});
  result.out_sf = test::HostTensor(DType::f32, {num_runs, hidden});
  for (int64_t h = 0; h < hidden; ++h) {
    for (int64_t first = 0; first < num_tokens; first += num_per_tokens) {
      const int64_t end = std::min(first + num_per_tokens, num_tokens);
      float amax = 0;
      for (int64_t t = first; t < end; ++t) {
        const auto magnitude = std::fabs(static_cast<float>(x.value(t * hidden + h)));
        if (magnitude > amax) amax = magnitude;  // false for a NaN
      }
      const Scale scale = scale_of(amax, DType::e4m3, round_sf);
      result.out_sf.set_bits(first / num_per_tokens * hidden + h, bits_of(scale.sf));
      for (int64_t t = first; t < end; ++t) {
        const float value = static_cast<float>(x.value(t * hidden + h)) * scale.inv;
        result.out.set_bits(t * hidden + h, encode(DType::e4m3, static_cast<double>(value)));
      }
    }
  }
  return result;
}

ChannelCastResult per_channel_cast_and_transpose(const test::HostTensor& x, int64_t num_per_tokens,
                                                 bool round_sf) {
  ChannelCastResult result = per_channel_cast(x, num_per_tokens, round_sf);
  const int64_t num_tokens = x.shape()[0], hidden = x.shape()[1];
  test::HostTensor transposed(DType::e4m3, {hidden, num_tokens});
  for (int64_t i = 0; i < transposed.size(); ++i) {
    transposed.set_bits(i, result.out.bits(i % num_tokens * hidden + i / num_tokens));
  }
  result.out = std::move(transposed);
  return result;
}

test::HostTensor gathered_rows(const test::HostTensor& x, const test::HostTensor* x_sf,
                               const test::HostTensor* pos_to_token) {
  const int64_t num_tokens = x.shape()[0], hidden = x.shape()[1];
  const int64_t num_rows = pos_to_token == nullptr ? num_tokens : pos_to_token->size();
  test::HostTensor rows(DType::f32, {num_rows, hidden});
  for (int64_t i = 0; i < num_rows; ++i) {
    const auto token = pos_to_token == nullptr ? i : static_cast<int64_t>(pos_to_token->value(i));
    for (int64_t h = 0; h < hidden; ++h) {
      float value = 0;
      if (token >= 0 && token < num_tokens) {
        value = static_cast<float>(x.value(token * hidden + h));
        if (x_sf != nullptr) {
          value *= static_cast<float>(x_sf->value(token * (hidden / 128) + h / 128));
        }
      }
      rows.set_bits(i * hidden + h, bits_of(value));
    }
  }
  return rows;
}

}  // namespace tessera::reference
