// attention_varlen_fwd: attention_fwd of requests that lie one behind the other, each with the bits that it has alone.
//
// Dtypes   as attention_fwd
// Method   see fwd_kernel.cpp; a block finds its request by the bounds (packed_requests.h)

#include <string_view>

#include "kernels/attention/parts/forward_call.h"
#include "kernels/attention/parts/fwd_values.h"
#include "kernels/attention/parts/packed_bounds.h"
#include "kernels/attention/parts/signature_parts.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  attention::add_forward(
      c,
      {attention::one_request(c.given("q")), attention::one_request(c.given("k")),
       attention::one_request(c.given("v")), attention::one_request(c.given("out")),
       attention::one_request(c.given("lse"))},
      go);
}

constexpr std::string_view kTensors = R"(
      q       bf16/f16 [Tq, h, dk] rows
      k       as q [Tk, g, dk] rows      # heads of q share those of k and v in groups of h / g
      v       as q [Tk, g, dv] rows
      cu_q    i32 [B+1]                  # where requests end in q, from 0 on
      cu_k    i32 [B+1]                  # and in k and v
      sink?   f32 [h]                    # exp(sink) is added to the sum of a row, not to lse
      -> out  as q [Tq, h, dv]
      -> lse  f32 [h, Tq]
    )";
constexpr std::string_view kLimits = R"(
      limit  Tq <= 536870912 on q "so many rows are not supported"
      limit  Tk <= 536870912 on k "so many rows are not supported"
      limit  h * (ceil(Tq / 64) + B + 1) <= 2147483647 on q "so many rows are not supported"
    )";

}  // namespace

const Op attention_varlen_fwd_op{
    .name = "attention_varlen_fwd",
    .family = "attention",
    .purpose = "attention_fwd of requests that lie one behind the other",
    .signature = attention::kJoined<kTensors, attention::kMaskParams, attention::kForwardParams,
                                    attention::kMaskNeeds, kLimits>,
    .launches = launches,
    .check = attention::require_forward,
    .check_values = attention::require_bounds,
    .examples = R"(
      Tq=150 Tk=300 B=3 h=4 g=2 dk=64 dv=64 q=bf16 causal=true
      Tq=130 Tk=130 B=1 h=2 g=1 dk=128 dv=128 q=bf16; Tq=65 Tk=200 B=2 h=2 g=2 dk=96 dv=96 q=f16 sink=given softcap=8
      Tq=40 Tk=140 B=2 h=2 g=1 dk=192 dv=128 q=bf16; Tq=20 Tk=80 B=2 h=2 g=1 dk=256 dv=256 q=bf16 window_left=17)",
    .bench = R"(
      Tq=65536 Tk=65536 B=64 h=16 g=16 dk=128 dv=128 q=bf16 causal=true
      Tq=16384 Tk=16384 B=4 h=16 g=16 dk=128 dv=128 q=bf16 causal=true)",
    .values = {
        {"cu_q", [](const Case& c, int64_t b) { return attention::bound(c["Tq"], c["B"], b); }},
        {"cu_k", [](const Case& c, int64_t b) { return attention::bound(c["Tk"], c["B"], b); }}}};

}  // namespace tessera::kernels
