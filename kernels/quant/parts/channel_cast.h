#pragma once
// The kernel of per_channel_cast and per_channel_cast_fused.

#include "kernels/signature/launches.h"

namespace tessera::kernels {

/// Everything that generated code depends on.
struct ChannelCastSpec {
  enum class Rows : uint8_t { in_order, gathered, none };  // none: all rows are padding

  DType in;  // e4m3 with one scale per 128 columns of a row
  Rows rows;
  bool round_sf;
  uint8_t index_align;  // bytes of pos_to_token
  int32_t hidden;
  int32_t align;  // bytes of x
};

/// Adds the kernel of a call with x, x_sf if x is e4m3, pos_to_token if given, out, out_sf.
void add_channel_cast(const Call& c, Launches& go);

}  // namespace tessera::kernels
