// per_channel_cast_fused: gathers rows to the positions of their experts, then casts as
// per_channel_cast. The kernel and its description are in channel_cast.cpp.

#include "kernels/moe/parts/even_mapping.h"
#include "kernels/quant/parts/channel_cast.h"
#include "kernels/registry/all_ops.h"

namespace tessera::kernels {
namespace {

int64_t positions(const Call& c) {
  const TensorView& index = c.given("pos_to_token");
  return index.rank() == 1 ? index.shape[0] : c["T"];
}

}  // namespace

const Op per_channel_cast_fused_op{
    .name = "per_channel_cast_fused",
    .family = "quant",
    .purpose = "gathered rows, their columns to 8-bit floats with one scale per run of them",
    .signature = R"(
      x              bf16/f32/e4m3 [T, H]
      x_sf?          SF(1,num_per_channels)       iff x is e4m3
      pos_to_token?  i32 [P]                      values -2147483648 .. T - 1   # negative: padding
      -> out         e4m3 [P, H] align 16
      -> out_sf      f32 [ceil(P/128), H]
      param          num_per_tokens {128} = 128
      param          num_per_channels {none, 128} = none
      param          round_sf bool = false
      param          format {e4m3} = e4m3
      let            P = positions()
      need           num_per_channels != none iff x_sf on num_per_channels
      |              "only e4m3 has scales, one per 128 columns"
      need           H % 128 = 0 if x is e4m3
      need           P % 16 = 0 if pos_to_token on pos_to_token
      need           T % 128 = 0 if not pos_to_token
      limit          H <= 2147483647
    )",
    .launches = add_channel_cast,
    .functions = {{"positions", positions}},
    .examples = R"(
      T=128 H=320 x=bf16 round_sf=true; T=256 H=256 x=e4m3 num_per_channels=128; T=128 H=64 x=f32
      T=65 K=4 E=3 entries=97 H=512 x=bf16 pos_to_token=given
      T=65 K=4 E=3 entries=97 alignment=16 H=256 x=e4m3 num_per_channels=128 round_sf=true pos_to_token=given
      T=19 K=2 E=9 entries=30 alignment=16 H=100 x=f32 round_sf=true pos_to_token=given)",
    .bench = R"(
      T=4096 H=7168 x=bf16; T=4096 H=7168 x=e4m3 num_per_channels=128
      T=18562 H=7168 x=bf16 K=6 E=32 pos_to_token=given
      T=18551 H=7168 x=e4m3 num_per_channels=128 K=6 E=32 pos_to_token=given
      T=128 H=7168 x=bf16; T=128 H=7168 x=e4m3 num_per_channels=128 K=6 E=32 pos_to_token=given)",
    .case_words = {{"K", [](const Case&) { return int64_t{1}; }},
                   {"E", [](const Case&) { return int64_t{1}; }},
                   {"entries", moe::rank_entries},
                   {"alignment", [](const Case&) { return int64_t{128}; }},
                   {"P",
                    [](const Case& c) {
                      return c.has("pos_to_token") ? moe::mapping_of(c).num_positions() : c["T"];
                    }}},
    .values = {{"pos_to_token", [](const Case& c, int64_t position) {
                  const int64_t pair = moe::mapping_of(c).pair(position);
                  return pair < 0 ? -1 : pair / c["K"];
                }}}};

}  // namespace tessera::kernels
