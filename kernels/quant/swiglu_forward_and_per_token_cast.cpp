// swiglu_forward_and_per_token_cast: the op. Its kernel and the description are in
// swiglu_forward.cpp.

#include "kernels/checks/value_check.h"
#include "kernels/quant/parts/swiglu_forward.h"
#include "kernels/quant/parts/swiglu_tile.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

using Weights = SwigluSpec::Weights;
using Clamp = SwigluSpec::Clamp;

SwigluSpec spec_of(const Call& c) {
  SwigluSpec s;
  s.in = c.dtype("x");
  s.sf_layout = sf_layout_of(c.params(), "sf_layout");
  s.round_sf = c.flag("round_sf");
  s.align = static_cast<uint8_t>(c.align({"x"}));
  s.weights = !c.has("topk_weights")                ? Weights::none
              : c.given("topk_weights").size() == 0 ? Weights::all_zero
                                                    : Weights::given;
  s.clamp = c.has("clamped_count")              ? Clamp::counted
            : c.has_value("swiglu_clamp_value") ? Clamp::given
                                                : Clamp::none;
  s.experts = c.has("pos_to_expert") ? SwigluSpec::Experts::by_row : SwigluSpec::Experts::none;
  s.has_floor = c.has_value("sf_clamp_min");
  s.hidden = c.i32("H");
  s.group = c.i32("num_per_channels");
  cut_work(s, c["P"]);
  return s;
}

void launches(const Call& c, Launches& go) {
  if (c["P"] * c["H"] == 0) return;  // clamped_count does not change
  const SwigluSpec spec = spec_of(c);
  Args args;
  args.tensors.push_back({"x", reshaped(c.given("x"), {c["P"], 2, spec.hidden})});
  if (spec.weights == Weights::given) {
    const TensorView& weights = c.given("topk_weights");
    args.tensors.push_back({"topk_weights", reshaped(weights, {weights.size()})});
  }
  if (spec.has_floor) args.scalars.push_back({"amax_floor", c.number("sf_clamp_min")});
  if (spec.clamp != Clamp::none) {
    args.scalars.push_back({"clamp_value", c.number("swiglu_clamp_value")});
  }
  go.add(build_swiglu_forward, spec, args);
}

/// Slots of rows that are not padding must exist.
void check_values(const Call& c) {
  if (!c.has("topk_weights")) return;
  require_values(c.check(), "pos_to_token_topk", c.given("pos_to_token_topk"), INT32_MIN,
                 c.given("topk_weights").size() - 1, [&](int64_t row) {
                   return !c.has("pos_to_expert") || integer_at(c.given("pos_to_expert"), row) >= 0;
                 });
}

}  // namespace

const Op swiglu_forward_and_per_token_cast_op{
    .name = "swiglu_forward_and_per_token_cast",
    .family = "quant",
    .purpose = "gated activation of an expert's rows to 8-bit floats with one scale per group",
    .signature = R"(
      x                   bf16/f32 [P, 2H]       # gate, then up
      pos_to_token_topk?  i32 [P]                iff topk_weights
      topk_weights?       f32 [T, K]             iff pos_to_token_topk
      pos_to_expert?      i32 [P]
      -> out              e4m3 [P, H] align 16
      -> out_sf           SF(1,num_per_channels) sf_layout
      -> inout clamped_count?  i64 [3]
      param  num_per_channels {128, H}
      param  sf_layout = row_major
      param  round_sf bool = false
      param  swiglu_clamp_value float = none
      param  sf_clamp_min float = none
      param  format {e4m3} = e4m3
      need   H % 128 = 0
      limit  2*H <= 2147483647
      need   num_per_channels = 128 or num_per_channels = H
      need   sf_layout = row_major if num_per_channels != 128 "one scale per row is stored row-major"
      limit  num_per_channels <= 32768 if num_per_channels != 128
      |      "one scale for so many columns is not supported"
      need   round_sf if sf_layout = packed_ue8m0 on sf_layout "packed_ue8m0 scales are powers of two"
      need   swiglu_clamp_value != none if clamped_count on clamped_count
      |      "'clamped_count' needs 'swiglu_clamp_value'"
      need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
      need   2^-117 <= sf_clamp_min <= 3.4028234e38 if sf_clamp_min != none on sf_clamp_min
      bucket P * H at 262145, 1048577, 2097153          # cut_work
    )",
    .launches = launches,
    .check_values = check_values,
    .examples = R"(
      P=37 H=1024 x=bf16 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0 pos_to_expert=given
      P=5 H=1280 x=bf16 num_per_channels=128
      P=9 H=512 x=f32 num_per_channels=128 round_sf=true sf_layout=col_major_tma swiglu_clamp_value=0.5 pos_to_expert=given
      P=3 H=3584 x=bf16 num_per_channels=3584 swiglu_clamp_value=10 pos_to_token_topk=given topk_weights=given K=2 T=3 pos_to_expert=given
      P=6 H=512 x=bf16 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0 swiglu_clamp_value=0.5 pos_to_token_topk=given topk_weights=given K=2 T=6 pos_to_expert=given clamped_count=given)",
    .bench = R"(
      P=8656 H=1024 x=bf16 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0 pos_to_expert=given
      P=10080 H=1024 x=bf16 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0 pos_to_expert=given
      P=32736 H=1024 x=bf16 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0 pos_to_expert=given
      P=34080 H=1024 x=bf16 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0 pos_to_expert=given
      P=8656 H=1024 x=bf16 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0 swiglu_clamp_value=0.5 pos_to_expert=given clamped_count=given
      P=8656 H=3584 x=bf16 num_per_channels=128 round_sf=true sf_layout=packed_ue8m0 pos_to_expert=given
      P=8 H=2048 x=bf16 num_per_channels=128
      P=1024 H=2048 x=bf16 num_per_channels=128)",
    .values = {{"pos_to_token_topk", [](const Case&, int64_t row) { return 2 * row; }},
               // one padding row in 128
               {"pos_to_expert",
                [](const Case&, int64_t row) { return row % 128 == 127 ? -1 : row / 128; }}}};

}  // namespace tessera::kernels
