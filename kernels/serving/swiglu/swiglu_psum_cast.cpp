// swiglu_psum_cast: the gated activation of the rows of experts, weighted, then the cast of per_token_cast.
//
// Method   swiglu_forward.cpp; the warps of a block find out which of its rows belong to an expert (expert_rows.h)
// Maths    swiglu_fwd in f32, then scale and code of scale_factor.h; zero bytes in rows of padding

#include <bit>
#include <cstdint>
#include <string>

#include "kernels/quant/parts/swiglu_forward.h"
#include "kernels/quant/parts/swiglu_tile.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/swiglu/parts/expert_rows.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

/// A clamp of bf16 and one of f32 agree where the limit is a bf16 itself.
void check(const Call& c) {
  const double limit = c.number("swiglu_clamp_value");
  const auto narrow = static_cast<float>(limit);
  const bool is_bf16 =
      static_cast<double>(narrow) == limit && (std::bit_cast<uint32_t>(narrow) & 0xFFFFu) == 0;
  c.need(is_bf16, "swiglu_clamp_value", "parameter 'swiglu_clamp_value' has a wrong value",
         "a value of bf16", std::to_string(limit));
}

void launches(const Call& c, Launches& go) {
  SwigluSpec s{};
  s.in = c.dtype("x");
  s.sf_layout = sf_layout_of(c.params(), "sf_layout");
  s.round_sf = c.flag("round_sf");
  s.align = static_cast<uint8_t>(c.align({"x"}));
  s.weights = c.has("topk_weights") ? SwigluSpec::Weights::of_rows : SwigluSpec::Weights::none;
  s.clamp = SwigluSpec::Clamp::given;
  s.experts = SwigluSpec::Experts::by_ends;
  s.hidden = c.i32("H");
  s.group = c.i32("num_per_channels");
  cut_work(s, c["P"]);
  const Args args{{{"x", reshaped(c.given("x"), {c["P"], 2, s.hidden})}},
                  {{"clamp_value", c.number("swiglu_clamp_value")}}};
  go.add(build_swiglu_forward, s, args);
}

}  // namespace

const Op swiglu_psum_cast_op{
    .name = "swiglu_psum_cast",
    .family = "serving",
    .purpose = "gated activation of the rows of experts to e4m3 with one scale per group",
    .signature = R"(
      x              bf16 [P, 2H]          # gate, then up
      topk_weights?  f32 [P]               # of each row: row_weights of moe_plan
      psum           i32 [E]               # the ends of the experts' rows; other rows are padding
      -> out         e4m3 [P, H] align 16  # zeros in padding
      -> out_sf      SF(1,num_per_channels) sf_layout
      param  num_per_channels {32, 128} = 32
      param  swiglu_clamp_value float = 10 # a value of bf16; inf: none
      param  alignment int = 128           # of the rows of an expert
      param  round_sf bool = true
      param  sf_layout = packed_ue8m0
      need   H >= 1 on x "argument 'x' has no columns"
      limit  H % 32 = 0 on x "rows of so many columns are not supported"
      limit  2*H <= 2147483647
      need   1 <= alignment <= 2147483647
      need   E >= 1 on psum "argument 'psum' has no experts"
      need   swiglu_clamp_value > 0
      need   round_sf if sf_layout = packed_ue8m0 on sf_layout
      |      "packed_ue8m0 scales are powers of two"
      bucket P * H at 1048577, 2097153     # cut_work
    )",
    .launches = launches,
    .check = check,
    .check_values = serving::require_expert_rows,
    .examples = R"(
      P=37 H=1024 E=3 alignment=8; P=300 H=512 E=2 topk_weights=given num_per_channels=128 round_sf=false sf_layout=row_major
      P=2100 H=1280 E=3 topk_weights=given swiglu_clamp_value=inf sf_layout=col_major_tma)",
    .bench = R"(
      P=48 H=2048 E=256 alignment=8 topk_weights=given; P=2176 H=2048 E=256 alignment=8 topk_weights=given
      P=49152 H=3072 E=256 topk_weights=given
      P=49152 H=3072 E=256 topk_weights=given num_per_channels=128 round_sf=false sf_layout=row_major)",
    .values = {{"psum", [](const Case& c, int64_t e) {
                  const int64_t alignment = c["alignment"];
                  const int64_t share = c["P"] / c["E"] / alignment * alignment;
                  return share == 0 ? c["P"] : share * (e + 1) - 1;
                }}}};

}  // namespace tessera::kernels
