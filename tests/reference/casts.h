#pragma once
// Conversions between float formats, by definition.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct PlainCastOptions {
  DType out_dtype = DType::bf16;
  bool stochastic = false;
  uint32_t seed = 0;
};

/// To nearest, ties to even; e4m3 saturates, NaN becomes the format's own. Stochastically: elements i ..
/// i + 3 with the f32 bits a, b, c, d share h = a 0x5671D42B + b 0x9995E499 + c 0xACE1B8A5 + d 0xE153538D
/// + i / 4 + seed, which is mixed to two words. A bf16 adds 16 bits of them below its last bit, an e4m3 32.
test::HostTensor cast(const test::HostTensor& x, const PlainCastOptions& options);

struct RoundTripOptions {
  DType format = DType::e4m3;  // or e2m1
  int64_t num_per_channels = 128;
  bool round_sf = false, e4m3_sf = false;
};

/// x [T, H] becomes round(cast(x inverse) scale) in groups of columns.
test::HostTensor per_token_cast_and_cast_back(const test::HostTensor& x,
                                              const RoundTripOptions& options);

}  // namespace tessera::reference
