// gated_delta_fwd: the gated delta rule over whole requests, in chunks of 64 tokens.
//
// Dtypes   q, k, v, out bf16|f16; g f32; beta f32|bf16; states f32, in a pool f32|bf16
// Method   see chunk_kernel.cpp

#include <numeric>

#include "kernels/attention/parts/fwd_values.h"
#include "kernels/checks/value_check.h"
#include "kernels/jit/target.h"
#include "kernels/linear/parts/chunk_kernel.h"
#include "kernels/linear/parts/delta_call.h"
#include "kernels/linear/parts/slots.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

/// Bytes of a block that holds tiles of `stages` chunks, if no buffers share memory.
int64_t bytes_of(const linear::ChunkSpec& s, int64_t columns, int64_t stages) {
  constexpr int64_t kTokens = linear::kChunk, kHalf = 2, kSingle = 4;  // bytes of elements
  constexpr int64_t kSmall = 4096;                                     // what is less than a tile
  const int64_t row_tile = kTokens * s.dk * kHalf, value_tile = kTokens * columns * kHalf;
  const int64_t triangles = kTokens * kTokens * (2 * kSingle + kHalf);
  const int64_t normed = s.has_norm && stages > 1 ? 2 * row_tile : 0;
  return stages * (2 * row_tile + value_tile) + s.dk * columns * kHalf + value_tile + normed +
         triangles + kSmall;
}

void launches(const Call& c, Launches& go) {
  const bool has_final = c.flag("output_final_state");
  linear::ChunkSpec s{};
  s.has_tokens = c["S"] > 0;
  s.has_pool = c.has("pool");
  s.reads_state = s.has_pool || c.has("initial_state");
  s.writes_state = s.has_pool || has_final;
  if (c["B"] == 0 || c["hv"] == 0 || (!s.has_tokens && !s.writes_state)) return;
  s.dtype = c.dtype("q"), s.beta_dtype = c.dtype("beta");
  s.state_dtype = s.has_pool ? c.dtype("pool") : DType::f32;
  s.has_norm = c.flag("qk_norm"), s.has_lengths = s.has_tokens && c.has("lengths");
  s.has_read_slots = c.has("read_slots"), s.has_write_slots = c.has("write_slots");
  s.dk = c.i32("dk"), s.dv = c.i32("dv");
  const int64_t memory = jit::shared_memory_limit(c.device());
  s.columns = bytes_of(s, 64, 1) <= memory ? 64 : 32;
  s.stages = bytes_of(s, s.columns, 2) <= memory ? 2 : 1;
  Args args;
  if (s.has_tokens) {
    const Dims parts = {c["B"], c["S"], c["hv"], s.dv / s.columns, s.columns};
    args.tensors = {{"v", reshaped(c.given("v"), parts)}, {"out", reshaped(c.given("out"), parts)}};
    constexpr int64_t kWidest = 8;
    int64_t width = common_vector(c.given("v"), kWidest);
    for (const char* name : {"q", "k"})
      width = std::gcd(width, common_vector(c.given(name), kWidest));
    s.row_width = static_cast<uint8_t>(width);
    s.out_width = static_cast<uint8_t>(common_vector(c.given("out"), kWidest));
  }
  args.scalars = {{"scale", attention::scale_of(c)}};
  go.add(linear::build_chunks, s, args);
}

void check(const Call& c) {
  linear::require_scale(c);
  c.need(c["segment"] == 0, "segment", "parameter 'segment' is not supported", "0",
         std::to_string(c["segment"]), ErrorKind::unsupported);
}

void check_values(const Call& c) {
  if (c.has("lengths")) require_values(c.check(), "lengths", c.given("lengths"), 0, c["S"]);
  linear::require_slots(c, /*skips_padding=*/false);
}

}  // namespace

const Op gated_delta_fwd_op{
    .name = "gated_delta_fwd",
    .family = "linear",
    .purpose = "the gated delta rule over whole requests, and their states",
    .signature = R"(
      q                bf16/f16 [B, S, h, dk] rows
      k                as q [B, S, h, dk] rows         # heads of v share those of k in groups of hv / h
      v                as q [B, S, hv, dv] rows
      g                f32 [B, S, hv] rows             # natural log of the decay
      beta             f32/bf16 [B, S, hv] rows
      lengths?         i32 [B]                         # tokens behind them are padding, out +0
      initial_state?   f32 [B, hv, dk, dv]             # absent: +0
      read_slots?      i32 [B]                         # of 'pool'; -1: +0; absent: request b has slot b
      write_slots?     i32 [B]                         # -1: the state is not written
      -> out           as q [B, S, hv, dv]
      -> final_state?  f32 [B, hv, dk, dv]             iff output_final_state
      -> inout pool?   f32/bf16 [N, hv, dk, dv] any1   # states of requests, in place of the other two
      param  scale float = none                        # none: dk^-0.5
      param  qk_norm bool = false                      # q and k are divided by their lengths
      param  norm_eps float = 1e-6
      param  segment int >= 0 = 0
      param  output_final_state bool = false
      need   h >= 1 on q "argument 'q' has no heads"
      need   hv % h = 0 on v "the heads of 'v' are no multiple of those of 'k'"
      need   segment % 64 = 0 on segment "parameter 'segment' is no multiple of 64"
      limit  dk in {64, 128} on q "heads of this extent are not supported"
      limit  dv in {64, 128} on v "heads of this extent are not supported"
      need   not initial_state if pool on initial_state "states come from 'initial_state' or from 'pool'"
      need   not output_final_state if pool on output_final_state "states go to 'final_state' or to 'pool'"
      need   pool if read_slots on read_slots "'read_slots' needs 'pool'"
      need   pool if write_slots on write_slots "'write_slots' needs 'pool'"
      need   N >= 1 if pool on pool "argument 'pool' has no slots"
      need   N >= B if pool and not (read_slots and write_slots) on pool
      |      "argument 'pool' has fewer slots than requests"
      limit  S <= 536870912 on q "so many rows are not supported"
      limit  B * hv <= 536870912 on q "so many rows are not supported"
    )",
    .launches = launches,
    .check = check,
    .check_values = check_values,
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
