// attention_bwd: gradients of attention_fwd.
//
// Dtypes   q, k, v, out and all their gradients bf16|f16; lse, sinks and their gradients f32
// Method   see bwd_kernel.cpp and bwd_rows.cpp: sums of rows, then grad_k and grad_v by keys, then grad_q by rows; the
//          heads that share one of keys are added in order
// Maths    p = exp2(fma(score, c, -a)) with a of lse; p and ds are rounded to the dtype of q for the products, 16 of k
//          per instruction, rows and keys ascending; grad_q in parts of 128 keys (64 for heads over 128). Nothing is added
//          in an open order: two calls give equal bits, and a request those that it has alone.

#include <string_view>

#include "kernels/attention/parts/backward_call.h"
#include "kernels/attention/parts/signature_parts.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

constexpr std::string_view kTensors = R"(
      grad_out           bf16/f16 [B, Sq, h, dv] rows  # as q
      q                  bf16/f16 [B, Sq, h, dk] rows
      k                  as q [B, Sk, g, dk] rows      # heads of q share those of k and v in groups of h / g
      v                  as q [B, Sk, g, dv] rows
      out                as q [B, Sq, h, dv] rows      # what attention_fwd gave
      lse                f32 [B, h, Sq]                # the same
      q_lengths?         i32 [B]                       values 0 .. Sq
      k_lengths?         i32 [B]                       values 0 .. Sk
      sink?              f32 [h]
      grad_lse?          f32 [B, h, Sq]                # of lse, without sink
      -> grad_q          as q [B, Sq, h, dk]
      -> grad_k          as q [B, Sk, g, dk]
      -> grad_v          as q [B, Sk, g, dv]
      -> acc grad_sink?  f32 [h]                       iff sink
      workspace          f32 [elements()]
    )";
constexpr std::string_view kLimits = R"(
      limit  Sq <= 536870912 on q "so many rows are not supported"
      limit  Sk <= 536870912 on k "so many rows are not supported"
      limit  B * h * ceil(Sq / 16) <= 2147483647 on q "so many rows are not supported"
      limit  B * h * ceil(Sk / 32) <= 2147483647 on k "so many rows are not supported"
      limit  B * Sk * g <= 2130706431 on k "so many rows are not supported"
    )";

}  // namespace

const Op attention_bwd_op{
    .name = "attention_bwd",
    .family = "attention",
    .purpose = "gradients of attention_fwd",
    .signature =
        attention::kJoined<kTensors, attention::kMaskParams, attention::kMaskNeeds, kLimits>,
    .launches = attention::add_backward,
    .check = attention::require_backward,
    .functions = {{"elements", attention::backward_elements}},
    .examples = R"(
      B=2 Sq=70 Sk=150 h=4 g=2 dk=64 dv=64 q=bf16 grad_out=bf16 causal=true
      B=1 Sq=130 Sk=130 h=2 g=2 dk=128 dv=128 q=bf16 grad_out=bf16
      B=1 Sq=65 Sk=200 h=2 g=2 dk=96 dv=96 q=f16 grad_out=f16 sink=given softcap=8
      B=2 Sq=40 Sk=140 h=2 g=1 dk=192 dv=128 q=bf16 grad_out=bf16 k_lengths=given q_lengths=given
      B=1 Sq=20 Sk=80 h=2 g=2 dk=256 dv=256 q=bf16 grad_out=bf16 window_left=17 window_right=5 grad_lse=given)",
    .bench = R"(
      B=4 Sq=4096 Sk=4096 h=48 g=48 dk=128 dv=128 q=bf16 grad_out=bf16
      B=4 Sq=4096 Sk=4096 h=48 g=48 dk=128 dv=128 q=bf16 grad_out=bf16 causal=true)",
    .values = {
        {"q_lengths", [](const Case& c, int64_t b) { return c["Sq"] - b * 7 % (c["Sq"] + 1); }},
        {"k_lengths", [](const Case& c, int64_t b) { return c["Sk"] - b * 9 % (c["Sk"] + 1); }}}};

}  // namespace tessera::kernels
