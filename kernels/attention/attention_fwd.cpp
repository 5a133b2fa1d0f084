// attention_fwd: out = softmax(scale * q k^T) v of each request and head, and the logarithm of the sum of exponentials.
//
// Dtypes   q, k, v and out bf16|f16; lse f32
// Method   see fwd_kernel.cpp
// Maths    scores and p v by the tensor cores, 16 of k per instruction; p = exp2(fma(score, c, -max c)) with
//          c = scale * log2 e; the sum of a row in 32 classes of keys; p rounded to the dtype of q for p v, not in
//          the sum. Blocks of 128 keys (64 for heads of 256), ascending. No bit of a row depends on the tile, on
//          other rows, requests or heads.

#include <string_view>

#include "kernels/attention/parts/forward_call.h"
#include "kernels/attention/parts/fwd_values.h"
#include "kernels/attention/parts/signature_parts.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  attention::add_forward(
      c, {c.given("q"), c.given("k"), c.given("v"), c.given("out"), c.given("lse")}, go);
}

constexpr std::string_view kTensors = R"(
      q           bf16/f16 [B, Sq, h, dk] rows
      k           as q [B, Sk, g, dk] rows      # heads of q share those of k and v in groups of h / g
      v           as q [B, Sk, g, dv] rows
      q_lengths?  i32 [B]                       values 0 .. Sq
      k_lengths?  i32 [B]                       values 0 .. Sk
      sink?       f32 [h]                       # exp(sink) is added to the sum of a row, not to lse
      -> out      as q [B, Sq, h, dv]
      -> lse      f32 [B, h, Sq]
    )";
constexpr std::string_view kLimits = R"(
      limit  Sq <= 536870912 on q "so many rows are not supported"
      limit  Sk <= 536870912 on k "so many rows are not supported"
      limit  B * h * ceil(Sq / 64) <= 2147483647 on q "so many rows are not supported"
    )";

}  // namespace

const Op attention_fwd_op{
    .name = "attention_fwd",
    .family = "attention",
    .purpose = "softmax(scale * q k^T) v of each head, and its log of the sum of exponentials",
    .signature = attention::kJoined<kTensors, attention::kMaskParams, attention::kForwardParams,
                                    attention::kMaskNeeds, kLimits>,
    .launches = launches,
    .check = attention::require_forward,
    .examples = R"(
      B=2 Sq=70 Sk=150 h=4 g=2 dk=64 dv=64 q=bf16 causal=true
      B=1 Sq=130 Sk=130 h=2 g=1 dk=128 dv=128 q=bf16; B=1 Sq=65 Sk=200 h=2 g=2 dk=96 dv=96 q=f16 sink=given softcap=8
      B=2 Sq=40 Sk=140 h=2 g=1 dk=192 dv=128 q=bf16 k_lengths=given q_lengths=given
      B=1 Sq=20 Sk=80 h=2 g=1 dk=256 dv=256 q=bf16 window_left=17 window_right=5)",
    .bench = R"(
      B=4 Sq=4096 Sk=4096 h=16 g=16 dk=128 dv=128 q=bf16
      B=4 Sq=4096 Sk=4096 h=16 g=16 dk=128 dv=128 q=bf16 causal=true
      B=1 Sq=16384 Sk=16384 h=16 g=16 dk=128 dv=128 q=bf16
      B=4 Sq=4096 Sk=4096 h=64 g=8 dk=128 dv=128 q=bf16 causal=true
      B=4 Sq=4096 Sk=4096 h=32 g=32 dk=64 dv=64 q=bf16
      B=4 Sq=4096 Sk=4096 h=32 g=32 dk=64 dv=64 q=bf16 causal=true
      B=4 Sq=4096 Sk=4096 h=16 g=16 dk=192 dv=128 q=bf16 causal=true
      B=2 Sq=8192 Sk=8192 h=16 g=16 dk=256 dv=256 q=bf16)",
    .values = {
        {"q_lengths", [](const Case& c, int64_t b) { return c["Sq"] - b * 7 % (c["Sq"] + 1); }},
        {"k_lengths", [](const Case& c, int64_t b) { return c["Sk"] - b * 9 % (c["Sk"] + 1); }}}};

}  // namespace tessera::kernels
