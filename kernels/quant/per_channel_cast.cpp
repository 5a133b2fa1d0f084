// per_channel_cast: casts columns to e4m3 with one scale per run of 128 tokens. The kernel and its
// description are in channel_cast.cpp.

#include "kernels/quant/parts/channel_cast.h"
#include "kernels/registry/all_ops.h"

namespace tessera::kernels {

const Op per_channel_cast_op{.name = "per_channel_cast",
                             .family = "quant",
                             .purpose = "columns to 8-bit floats with one scale per run of tokens",
                             .signature = R"(
      x          bf16/f32 [T, H]
      -> out     e4m3 [T, H] align 16
      -> out_sf  SF(128,1)
      param      num_per_tokens {128} = 128
      param      round_sf bool = false
      param      format {e4m3} = e4m3
      need       T % 128 = 0
      need       H % 64 = 0
      limit      H <= 2147483647
    )",
                             .launches = add_channel_cast,
                             .examples = R"(
      T=256 H=192 x=bf16; T=128 H=576 x=bf16 round_sf=true; T=128 H=320 x=f32)",
                             .bench = R"(
      T=8064 H=7168 x=bf16; T=8064 H=7168 x=bf16 round_sf=true; T=8064 H=7168 x=f32
      T=128 H=7168 x=bf16)"};

}  // namespace tessera::kernels
