// swiglu_backward_and_per_token_cast: the op. Its kernel and the description are in
// swiglu_backward.cpp.

#include "kernels/moe/parts/even_mapping.h"
#include "kernels/quant/parts/swiglu_backward.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  const int64_t rows = c["P"], hidden = c["H"], entries = c["T"] * c["K"];
  const int64_t groups = hidden / c["num_per_channels"];
  SwigluBackwardSpec s;
  s.hidden = c.i32("H");
  s.group = c.i32("num_per_channels");
  s.align = static_cast<uint8_t>(c.align({"x", "grad_out"}));
  s.round_sf = c.flag("round_sf");
  s.has_clamp = c.has_value("swiglu_clamp_value");
  s.has_rows = rows * hidden > 0;
  s.has_entries = entries > 0;
  Args args;
  const auto with_shape = [&](const char* name, const Dims& shape) {
    args.tensors.push_back({name, reshaped(c.given(name), shape)});
  };
  for (const char* name : {"x", "grad_x_fp8", "grad_x"}) with_shape(name, {rows, 2, hidden});
  for (const char* name : {"x_sf", "grad_x_fp8_sf"}) with_shape(name, {rows, 2, groups});
  for (const char* name : {"weight", "token_topk_to_pos", "grad_weight"}) {
    with_shape(name, {entries});
  }
  if (s.has_clamp) args.scalars.push_back({"clamp_value", c.number("swiglu_clamp_value")});
  go.add(build_swiglu_backward, s, args);
}

}  // namespace

const Op swiglu_backward_and_per_token_cast_op{
    .name = "swiglu_backward_and_per_token_cast",
    .family = "quant",
    .purpose = "gradients of the gated activation of an expert's rows, as floats and 8-bit floats",
    .signature = R"(
      x                  e4m3 [P, 2H]              # gate, then up
      x_sf               SF(1,num_per_channels)
      grad_out           bf16 [P, H]
      weight             f32 [T, K]
      pos_to_token_topk  i32 [P]                   values -2147483648 .. T * K - 1   # negative: padding
      token_topk_to_pos  i32 [T, K]                values -2147483648 .. P - 1
      -> out             bf16 [P, H] align 16
      -> grad_x_fp8      e4m3 [P, 2H] align 16
      -> grad_x_fp8_sf   SF(1,num_per_channels)
      -> grad_x          bf16 [P, 2H] align 16
      -> grad_weight     f32 [T, K]
      param  num_per_channels {32, 128}
      param  round_sf bool = false
      param  swiglu_clamp_value float = none
      need   H % num_per_channels = 0
      need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
      limit  H <= 65536 "rows of so many columns are not supported"
      limit  T * K <= 2130706431 on weight
    )",
    .launches = launches,
    .examples = R"(
      T=17 K=2 E=3 entries=23 H=7168 num_per_channels=128
      T=17 K=2 E=3 entries=23 H=2560 num_per_channels=32 round_sf=true swiglu_clamp_value=10
      T=9 K=3 E=4 entries=20 H=96 num_per_channels=32 swiglu_clamp_value=0.5
      T=5 K=1 E=1 entries=5 H=384 num_per_channels=128 round_sf=true)",
    .bench = R"(
      T=7842 K=2 H=7168 E=9 num_per_channels=32 round_sf=true
      T=9851 K=2 H=7168 E=4 num_per_channels=32 round_sf=true
      T=21796 K=8 H=7168 E=9 num_per_channels=32 round_sf=true
      T=32430 K=8 H=7168 E=4 num_per_channels=32 round_sf=true
      T=1 K=8 H=7168 E=8 num_per_channels=128; T=128 K=8 H=7168 E=256 num_per_channels=128)",
    .case_words = {{"E", nullptr},
                   {"entries", moe::rank_entries},
                   {"alignment", [](const Case& c) { return c["num_per_channels"]; }},
                   {"P", [](const Case& c) { return moe::mapping_of(c).num_positions(); }}},
    .values = {
        {"pos_to_token_topk", [](const Case& c, int64_t i) { return moe::mapping_of(c).pair(i); }},
        {"token_topk_to_pos",
         [](const Case& c, int64_t i) { return moe::mapping_of(c).position(i); }}}};

}  // namespace tessera::kernels
