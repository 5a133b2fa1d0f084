#pragma once
// Casts with one scale per column and run of tokens, by definition.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct ChannelCastResult {
  test::HostTensor out;     // e4m3 [H, T]
  test::HostTensor out_sf;  // f32 [T / num_per_tokens, H]
};

/// Casts each column of bf16 [T, H] in runs of `num_per_tokens` tokens (T is a multiple of it) and
/// transposes the codes.
ChannelCastResult per_channel_cast_and_transpose(const test::HostTensor& x, int64_t num_per_tokens,
                                                 bool round_sf);

}  // namespace tessera::reference
