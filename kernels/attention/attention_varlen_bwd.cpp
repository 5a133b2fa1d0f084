// attention_varlen_bwd: gradients of attention_varlen_fwd, each request with the bits that attention_bwd gives it alone.
//
// Dtypes   as attention_bwd
// Method   see bwd_kernel.cpp; a block finds its request by the bounds (packed_requests.h). Rows and keys behind all
//          requests get gradients of 0

#include <string_view>

#include "kernels/attention/parts/backward_call.h"
#include "kernels/attention/parts/packed_bounds.h"
#include "kernels/attention/parts/signature_parts.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

constexpr std::string_view kTensors = R"(
      grad_out           bf16/f16 [Tq, h, dv] rows  # as q
      q                  bf16/f16 [Tq, h, dk] rows
      k                  as q [Tk, g, dk] rows      # heads of q share those of k and v in groups of h / g
      v                  as q [Tk, g, dv] rows
      out                as q [Tq, h, dv] rows      # what attention_varlen_fwd gave
      lse                f32 [h, Tq]                # the same
      cu_q               i32 [B+1]                  # where requests end in q, from 0 on
      cu_k               i32 [B+1]                  # and in k and v
      sink?              f32 [h]
      grad_lse?          f32 [h, Tq]                # of lse, without sink
      -> grad_q          as q [Tq, h, dk]
      -> grad_k          as q [Tk, g, dk]
      -> grad_v          as q [Tk, g, dv]
      -> acc grad_sink?  f32 [h]                    iff sink
      workspace          f32 [elements()]
    )";
constexpr std::string_view kLimits = R"(
      limit  Tq <= 536870912 on q "so many rows are not supported"
      limit  Tk <= 536870912 on k "so many rows are not supported"
      limit  h * (ceil(Tq / 16) + B + 1) <= 2147483647 on q "so many rows are not supported"
      limit  h * (ceil(Tk / 32) + B + 1) <= 2147483647 on k "so many rows are not supported"
      limit  Tk * g <= 2130706431 on k "so many rows are not supported"
    )";

}  // namespace

const Op attention_varlen_bwd_op{
    .name = "attention_varlen_bwd",
    .family = "attention",
    .purpose = "gradients of attention_varlen_fwd",
    .signature =
        attention::kJoined<kTensors, attention::kMaskParams, attention::kMaskNeeds, kLimits>,
    .launches = attention::add_backward,
    .check = attention::require_backward,
    .check_values = attention::require_bounds,
    .functions = {{"elements", attention::backward_elements}},
    .examples = R"(
      Tq=150 Tk=300 B=3 h=4 g=2 dk=64 dv=64 q=bf16 grad_out=bf16 causal=true
      Tq=130 Tk=130 B=1 h=2 g=2 dk=128 dv=128 q=bf16 grad_out=bf16
      Tq=65 Tk=200 B=2 h=2 g=2 dk=96 dv=96 q=f16 grad_out=f16 sink=given softcap=8
      Tq=40 Tk=140 B=2 h=2 g=1 dk=192 dv=128 q=bf16 grad_out=bf16
      Tq=20 Tk=80 B=2 h=2 g=2 dk=256 dv=256 q=bf16 grad_out=bf16 window_left=17 window_right=5 grad_lse=given)",
    .bench = R"(
      Tq=65536 Tk=65536 B=64 h=16 g=16 dk=128 dv=128 q=bf16 grad_out=bf16 causal=true)",
    .values = {
        {"cu_q", [](const Case& c, int64_t b) { return attention::bound(c["Tq"], c["B"], b); }},
        {"cu_k", [](const Case& c, int64_t b) { return attention::bound(c["Tk"], c["B"], b); }}}};

}  // namespace tessera::kernels
