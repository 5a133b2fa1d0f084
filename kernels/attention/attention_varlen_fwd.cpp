// attention_varlen_fwd: attention_fwd of requests that lie one behind the other, each with the bits that it has alone.
//
// Dtypes   as attention_fwd
// Method   see fwd_kernel.cpp; a block finds its request by the bounds (packed_requests.h)

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/attention/parts/forward_call.h"
#include "kernels/attention/parts/fwd_values.h"
#include "kernels/attention/parts/signature_parts.h"
#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

/// [T, ..] as [1, T, ..].
TensorView one_request(const TensorView& view) {
  const auto extents = view.shape, strides = view.strides;
  if (view.rank() == 2) {
    return {view.data,
            view.dtype,
            {1, extents[0], extents[1]},
            {0, strides[0], strides[1]},
            view.device};
  }
  return {view.data,
          view.dtype,
          {1, extents[0], extents[1], extents[2]},
          {0, strides[0], strides[1], strides[2]},
          view.device};
}

void launches(const Call& c, Launches& go) {
  attention::add_forward(
      c,
      {one_request(c.given("q")), one_request(c.given("k")), one_request(c.given("v")),
       one_request(c.given("out")), one_request(c.given("lse"))},
      go);
}

/// Bounds of requests, each longer than the one before.
int64_t bound(int64_t rows, int64_t requests, int64_t b) {
  return rows * b * (b + 1) / std::max<int64_t>(requests * (requests + 1), 1);
}

/// Bounds ascend from 0 to at most the rows of the tensors.
void require_bounds(const Call& c) {
  for (const auto& [name, rows] : {std::pair{"cu_q", c["Tq"]}, std::pair{"cu_k", c["Tk"]}}) {
    const TensorView& cu = c.given(name);
    if (!values_are_checked(cu)) continue;
    int64_t before = 0;
    for (int64_t b = 0; b <= c["B"]; ++b) {
      const int64_t most = b == 0 ? 0 : rows, now = integer_at(cu, b);
      c.need(now >= before && now <= most, name, out_of_range(name),
             std::to_string(before) + " .. " + std::to_string(most),
             std::to_string(now) + " at " + to_string(Dims{b}));
      before = now;
    }
  }
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
    .check_values = require_bounds,
    .examples = R"(
      Tq=150 Tk=300 B=3 h=4 g=2 dk=64 dv=64 q=bf16 causal=true
      Tq=130 Tk=130 B=1 h=2 g=1 dk=128 dv=128 q=bf16; Tq=65 Tk=200 B=2 h=2 g=2 dk=96 dv=96 q=f16 sink=given softcap=8
      Tq=40 Tk=140 B=2 h=2 g=1 dk=192 dv=128 q=bf16; Tq=20 Tk=80 B=2 h=2 g=1 dk=256 dv=256 q=bf16 window_left=17)",
    .bench = R"(
      Tq=65536 Tk=65536 B=64 h=16 g=16 dk=128 dv=128 q=bf16 causal=true
      Tq=16384 Tk=16384 B=4 h=16 g=16 dk=128 dv=128 q=bf16 causal=true)",
    .values = {{"cu_q", [](const Case& c, int64_t b) { return bound(c["Tq"], c["B"], b); }},
               {"cu_k", [](const Case& c, int64_t b) { return bound(c["Tk"], c["B"], b); }}}};

}  // namespace tessera::kernels
