#pragma once
// Casts with one scale per column and run of tokens, by definition.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct ChannelCastResult {
  test::HostTensor out;     // e4m3 [T, H] or [H, T]
  test::HostTensor out_sf;  // f32 [ceil(T / num_per_tokens), H]
};

/// Casts each column of bf16|f32 [T, H] in runs of `num_per_tokens` tokens, the last one shorter.
ChannelCastResult per_channel_cast(const test::HostTensor& x, int64_t num_per_tokens,
                                   bool round_sf);
/// The same with transposed codes.
ChannelCastResult per_channel_cast_and_transpose(const test::HostTensor& x, int64_t num_per_tokens,
                                                 bool round_sf);
/// Rows `pos_to_token` of x, zeros for an index that x does not have; all rows in order if it is
/// null. `x_sf` f32 [T, H / 128] is given with codes and null otherwise.
test::HostTensor gathered_rows(const test::HostTensor& x, const test::HostTensor* x_sf,
                               const test::HostTensor* pos_to_token);

}  // namespace tessera::reference
