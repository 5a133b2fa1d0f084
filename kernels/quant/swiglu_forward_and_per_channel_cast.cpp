// swiglu_forward_and_per_channel_cast: the op. Its kernel and the description are in
// swiglu_channel_cast.cpp.

#include "kernels/quant/parts/swiglu_channel_cast.h"
#include "kernels/registry/all_ops.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  add_swiglu_channel_cast(c, go, /*transposed=*/false);
}

}  // namespace

const Op swiglu_forward_and_per_channel_cast_op{
    .name = "swiglu_forward_and_per_channel_cast",
    .family = "quant",
    .purpose = "gated activation, its columns to 8-bit floats with one scale per run of tokens",
    .signature = R"(
      x          bf16 [T, 2H]                    # gate, then up
      -> out     e4m3 [T, H] align 16
      -> out_sf  f32 [T/num_per_tokens, H]
      param      num_per_tokens {32, 128}
      param      round_sf bool = false
      param      swiglu_clamp_value float = none
      param      format {e4m3} = e4m3
      need       T % 128 = 0
      need       H % 64 = 0
      need       swiglu_clamp_value > 0 if swiglu_clamp_value != none
      limit      2*H <= 2147483647
    )",
    .launches = launches,
    .examples = R"(
      T=256 H=192 num_per_tokens=128 round_sf=true
      T=128 H=576 num_per_tokens=32 swiglu_clamp_value=10
      T=128 H=64 num_per_tokens=128 swiglu_clamp_value=0.5)",
    .bench = R"(
      T=8064 H=7168 num_per_tokens=32 round_sf=true; T=8064 H=7168 num_per_tokens=32
      T=8064 H=7168 num_per_tokens=128 round_sf=true; T=8064 H=7168 num_per_tokens=128
      T=8064 H=7168 num_per_tokens=128 swiglu_clamp_value=10; T=128 H=7168 num_per_tokens=128)"};

}  // namespace tessera::kernels
