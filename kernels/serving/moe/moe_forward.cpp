// moe_forward: a layer of experts: the rows of the tokens' experts, two products with a gated activation between, and their
// sums.
//
// Method   moe_plan, moe_gather_cast, gemm_fp8_grouped (psum), swiglu_psum_cast, gemm_fp8_grouped, combine_reduce. The
//          counts stay on the device; nothing waits for it, so a call can be captured, and one capture serves every
//          num_tokens. Products by psum need no padding: the rows of experts follow each other.
// Maths    that of the parts; the first product is rounded to bf16
// Measured one H200, 256 experts of 4096 x 2048, 6 per token: 1 token 114 us, 64 1571 (97 % of the copy rate), 1024 1676, 8192 4018

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/moe/parts/mapping_values.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/chain.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kAlignment = 1;
constexpr int64_t kGroup = 128;            // columns of a scale
constexpr const char* kAbsent = "absent";  // a tensor that no call has

void parts(Chain& chain) {
  const Call& c = chain.call();
  const int64_t rows = c["T"] * c["K"];  // of any ids, without padding
  const bool at_sums = c.word("weights_at") == "combine";
  const double none = std::numeric_limits<double>::infinity();
  const double clamp = c.has_value("swiglu_clamp_value") ? c.number("swiglu_clamp_value") : none;
  const Params cast = {{"num_per_channels", kGroup}, {"sf_layout", std::string("col_major_tma")}};
  const Params product = {{"alignment", kAlignment}, {"a_sf_layout", std::string("col_major_tma")}};
  const auto with = [](Params params, const Params& more) {
    params.insert(more.begin(), more.end());
    return params;
  };
  chain.add(moe_plan_op, {{"topk_weights", at_sums ? kAbsent : "topk_weights"}},
            {{"num_experts", c["E"]}, {"alignment", kAlignment}});
  chain.add(moe_gather_cast_op, {{"out", "a"}, {"out_sf", "a_sf"}},
            with(cast, {{"num_topk", std::max<int64_t>(c["K"], 1)}, {"fill_padding", false}}));
  chain.allocate("mid", DType::bf16, {rows, 2 * c["I"]});
  chain.add(gemm_fp8_grouped_op, {{"b", "w13"}, {"b_sf", "w13_sf"}, {"out", "mid"}}, product);
  chain.add(swiglu_psum_cast_op,
            {{"x", "mid"},
             {"topk_weights", at_sums ? kAbsent : "row_weights"},
             {"out", "act"},
             {"out_sf", "act_sf"}},
            with(cast, {{"alignment", kAlignment}, {"swiglu_clamp_value", clamp}}));
  chain.allocate("y", DType::bf16, {rows, c["H"]});
  chain.add(gemm_fp8_grouped_op,
            {{"a", "act"}, {"a_sf", "act_sf"}, {"b", "w2"}, {"b_sf", "w2_sf"}, {"out", "y"}},
            product);
  chain.add(
      combine_reduce_op,
      {{"x", "y"}, {"pos", "pair_to_pos"}, {"topk_weights", at_sums ? "topk_weights" : kAbsent}});
}

int64_t elements(const Call& c) {
  return chained_elements(c, parts);
}

void launches(const Call& c, Launches& go) {
  launch_chain(c, go, parts);
}

/// The matrices of the experts that have a token, and the rows of tokens.
int64_t least_bytes(const Case& c) {
  const int64_t hidden = c["H"], inner = c["I"], pairs = c["T"] * c["K"];
  const int64_t experts = std::min(c["E"], pairs);
  return experts * 3 * inner * hidden + c["T"] * hidden * (c.has("base") ? 6 : 4) + 12 * pairs;
}

}  // namespace

const Op moe_forward_op{
    .name = "moe_forward",
    .family = "serving",
    .purpose = "a layer of experts: two block-scaled e4m3 products with a gated activation between",
    .signature = R"(
      x             bf16 [T, H] rows
      topk_idx      i32/i64 [T, K]                              # an expert, or -1
      topk_weights  f32 [T, K]
      w13           e4m3 [E, 2I, H]                             # gate, then up
      w13_sf        f32 [E, ceil(2I/128), ceil(H/128)]
      w2            e4m3 [E, H, I]
      w2_sf         f32 [E, ceil(H/128), ceil(I/128)]
      base?         bf16 [T, H] rows                            # such as a shared expert's result: is added
      num_tokens?   i32 [1]                                     # tokens from here on are 0
      -> out        bf16 [T, H] align 16
      workspace     f32 [elements()]
      param  activation {e4m3} = e4m3
      param  num_per_channels {128} = 128
      param  round_sf bool = false
      param  swiglu_clamp_value float = none                    # a value of bf16
      param  weights_at {l1, combine} = l1                      # of the activation, or of the sums
      need   H >= 1 on x "argument 'x' has no columns"
      need   H % 128 = 0 and I % 128 = 0 on w2 "the sizes of 'w2' are no multiples of 128"
      need   1 <= E <= 1024 on w13 "'w13' has the wrong number of experts"
      need   I >= 1 on w13 "argument 'w13' has no rows"
      need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
      limit  T * K <= 16777216 on topk_idx "'topk_idx' has too many pairs"
      bucket T * K at 2049, 65537                               # moe_plan
      bucket T * K / E at 65                                    # gemm_fp8_grouped
      bucket T * K * I at 1048577, 2097153                      # swiglu_psum_cast
      bucket T at 1024                                          # combine_reduce
    )",
    .launches = launches,
    .check_values = moe::require_ids,
    .functions = {{"elements", elements}},
    .examples = R"(
      T=5 K=2 E=4 H=256 I=128 topk_idx=i64 base=given num_tokens=given
      T=9 K=3 E=6 H=128 I=256 topk_idx=i32 weights_at=combine swiglu_clamp_value=10 round_sf=true)",
    .bench = R"(
      T=1 K=6 E=256 H=4096 I=2048 topk_idx=i64 swiglu_clamp_value=10
      T=64 K=6 E=256 H=4096 I=2048 topk_idx=i64 swiglu_clamp_value=10
      T=1024 K=6 E=256 H=4096 I=2048 topk_idx=i64 swiglu_clamp_value=10
      T=8192 K=6 E=256 H=4096 I=2048 topk_idx=i64 swiglu_clamp_value=10)",
    .values = {{"topk_idx", [](const Case& c, int64_t pair) { return pair % c["E"]; }},
               {"num_tokens", [](const Case& c, int64_t) { return c["T"] - 1; }}},
    .bytes = least_bytes};

}  // namespace tessera::kernels
