#include "tests/reference/per_channel_cast.h"

#include <cmath>

#include "tests/reference/numeric.h"
#include "tests/reference/scale.h"

namespace tessera::reference {

ChannelCastResult per_channel_cast_and_transpose(const test::HostTensor& x, int64_t num_per_tokens,
                                                 bool round_sf) {
  const int64_t num_tokens = x.shape()[0], hidden = x.shape()[1];
  ChannelCastResult result;
  result.out = test::HostTensor(DType::e4m3, {hidden, num_tokens});
  result.out_sf = test::HostTensor(DType::f32, {num_tokens / num_per_tokens, hidden});
  for (int64_t h = 0; h < hidden; ++h) {
    for (int64_t first = 0; first < num_tokens; first += num_per_tokens) {
      float amax = 0;
      for (int64_t t = first; t < first + num_per_tokens; ++t) {
        const auto magnitude = std::fabs(static_cast<float>(x.value(t * hidden + h)));
        if (magnitude > amax) amax = magnitude;  // false for a NaN
      }
      const Scale scale = scale_of(amax, DType::e4m3, round_sf);
      result.out_sf.set_bits(first / num_per_tokens * hidden + h, bits_of(scale.sf));
      for (int64_t t = first; t < first + num_per_tokens; ++t) {
        const float value = static_cast<float>(x.value(t * hidden + h)) * scale.inv;
        result.out.set_bits(h * num_tokens + t, encode(DType::e4m3, static_cast<double>(value)));
      }
    }
  }
  return result;
}

}  // namespace tessera::reference
