// gated_delta_fwd: the gated delta rule over whole requests, in chunks of 64 tokens.
//
// Dtypes   q, k, v, out bf16|f16; g f32; beta f32|bf16; states f32, in a pool f32|bf16
// Method   two kernels, see chunk_kernel.cpp

#include <string_view>

#include "kernels/attention/parts/signature_parts.h"
#include "kernels/checks/value_check.h"
#include "kernels/linear/parts/chunk_call.h"
#include "kernels/linear/parts/slots.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

void check_values(const Call& c) {
  if (c.has("lengths")) require_values(c.check(), "lengths", c.given("lengths"), 0, c["S"]);
  linear::require_slots(c, /*skips_padding=*/false);
}

constexpr std::string_view kTokens = R"(
      q                bf16/f16 [B, S, h, dk] rows
      k                as q [B, S, h, dk] rows         # heads of v share those of k in groups of hv / h
      v                as q [B, S, hv, dv] rows
      g                f32 [B, S, hv] rows             # natural log of the decay
      beta             f32/bf16 [B, S, hv] rows
      lengths?         i32 [B]                         # tokens behind them are padding, out +0
    )";
constexpr std::string_view kOut = R"(
      -> out           as q [B, S, hv, dv]
    )";
constexpr std::string_view kLimits = R"(
      limit  S <= 536870912 on q "so many rows are not supported"
    )";

}  // namespace

const Op gated_delta_fwd_op{
    .name = "gated_delta_fwd",
    .family = "linear",
    .purpose = "the gated delta rule over whole requests, and their states",
    .signature =
        attention::kJoined<kTokens, linear::kChunkStates, kOut, linear::kChunkRules, kLimits>,
    .launches = linear::add_chunks,
    .check = linear::require_chunks,
    .check_values = check_values,
    .functions = {{"elements", linear::chunk_elements}},
    .examples = R"(
      B=2 S=130 h=1 hv=2 dk=64 dv=64 q=bf16 beta=f32 initial_state=given output_final_state=true
      B=1 S=70 h=1 hv=1 dk=128 dv=128 q=bf16 beta=bf16 qk_norm=true
      B=2 S=70 h=1 hv=1 dk=64 dv=128 N=3 q=f16 beta=f32 pool=bf16 lengths=given read_slots=given write_slots=given)",
    .bench = R"(
      B=1 S=32768 h=16 hv=32 dk=128 dv=128 q=bf16 beta=f32; B=4 S=8192 h=16 hv=32 dk=128 dv=128 q=bf16 beta=f32
      B=8 S=4096 h=16 hv=16 dk=128 dv=128 q=bf16 beta=f32; B=1 S=8192 h=16 hv=64 dk=128 dv=128 q=bf16 beta=f32
      B=8 S=1024 h=16 hv=32 dk=128 dv=128 q=bf16 beta=f32)",
    .values = {{"lengths", [](const Case& c, int64_t b) { return c["S"] - b; }},
               {"read_slots", linear::slot_from_end},
               {"write_slots", linear::slot_from_end}}};

}  // namespace tessera::kernels
