// gated_delta_varlen_fwd: gated_delta_fwd of requests that lie one behind the other, each with the bits that it has alone.
//
// Dtypes   as gated_delta_fwd
// Method   see chunk_kernel.cpp; a block finds its request by the bounds (chunk_tensors.h)

#include <string>
#include <string_view>

#include "kernels/attention/parts/packed_bounds.h"
#include "kernels/attention/parts/signature_parts.h"
#include "kernels/checks/value_check.h"
#include "kernels/linear/parts/chunk_call.h"
#include "kernels/linear/parts/slots.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

void check_values(const Call& c) {
  linear::require_slots(c, /*skips_padding=*/false);
  const TensorView& cu = c.given("cu_seqlens");
  if (!values_are_checked(cu)) return;
  int64_t before = 0;
  for (int64_t b = 0; b <= c["B"]; ++b) {
    const int64_t most = b == 0 ? 0 : c["T"], now = integer_at(cu, b);
    c.need(now >= before && now <= most, "cu_seqlens", out_of_range("cu_seqlens"),
           std::to_string(before) + " .. " + std::to_string(most),
           std::to_string(now) + " at " + to_string(Dims{b}));
    before = now;
  }
}

constexpr std::string_view kTokens = R"(
      q                bf16/f16 [T, h, dk] rows
      k                as q [T, h, dk] rows            # heads of v share those of k in groups of hv / h
      v                as q [T, hv, dv] rows
      g                f32 [T, hv] rows                # natural log of the decay
      beta             f32/bf16 [T, hv] rows
      cu_seqlens       i32 [B+1]                       # where requests end, from 0 on; rows after the last: out +0
    )";
constexpr std::string_view kOut = R"(
      -> out           as q [T, hv, dv]
    )";
constexpr std::string_view kLimits = R"(
      limit  T <= 536870912 on q "so many rows are not supported"
      limit  hv * (ceil(T / 64) + B + 1) <= 1073741823 on q "so many rows are not supported"
    )";

}  // namespace

const Op gated_delta_varlen_fwd_op{
    .name = "gated_delta_varlen_fwd",
    .family = "linear",
    .purpose = "gated_delta_fwd of requests that lie one behind the other",
    .signature =
        attention::kJoined<kTokens, linear::kChunkStates, kOut, linear::kChunkRules, kLimits>,
    .launches = linear::add_chunks,
    .check = linear::require_chunks,
    .check_values = check_values,
    .functions = {{"elements", linear::chunk_elements}},
    .examples = R"(
      T=150 B=3 h=1 hv=2 dk=64 dv=64 q=bf16 beta=f32 initial_state=given output_final_state=true
      T=100 B=2 h=1 hv=1 dk=128 dv=128 q=bf16 beta=bf16 N=3 pool=bf16 qk_norm=true read_slots=given write_slots=given)",
    .bench = R"(
      T=65536 B=64 h=16 hv=32 dk=128 dv=128 q=bf16 beta=f32
      T=32768 B=8 h=16 hv=16 dk=128 dv=128 q=bf16 beta=f32)",
    .values = {{"cu_seqlens",
                [](const Case& c, int64_t b) { return attention::bound(c["T"], c["B"], b); }},
               {"read_slots", linear::slot_from_end},
               {"write_slots", linear::slot_from_end}}};

}  // namespace tessera::kernels
