// gated_delta_fwd: the gated delta rule over whole requests, in chunks of 64 tokens.
//
// Dtypes   q, k, v, out bf16|f16; g f32; beta f32|bf16; states f32, in a pool f32|bf16
// Method   two kernels, see chunk_kernel.cpp

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

constexpr int64_t kC = linear::kChunk, kHalf = 2, kSingle = 4;  // tokens; bytes of elements
constexpr int64_t kWidest = 8;                                  // elements of 16 bytes

int64_t chunks_of(const Call& c) {
  return (c["S"] + kC - 1) / kC;
}

/// The first kernel leaves A and P, normed q and k, and decays for the second. In elements of f32.
struct Workspace {
  explicit Workspace(const Call& c)
      : places(c["B"] * chunks_of(c) * c["hv"]),
        triangle(places * kC * kC * kHalf / kSingle),
        normed(c.flag("qk_norm") ? c["B"] * chunks_of(c) * kC * c["h"] * c["dk"] * kHalf / kSingle
                                 : 0),
        decays(places * 2 * kC) {}
  int64_t places, triangle, normed, decays;
};

int64_t workspace_elements(const Call& c) {
  const Workspace w(c);
  return 2 * w.triangle + 2 * w.normed + w.decays;
}

/// Bytes of a block that holds `stages` chunks.
int64_t bytes_of(const linear::ChunkSpec& s, int64_t stages) {
  constexpr int64_t kSmall = 2048;  // of barriers
  const int64_t values = s.groups * kC * linear::kColumns * kHalf;
  const int64_t chunk = (2 * kC * s.dk + 2 * kC * kC) * kHalf + values + 2 * kC * kSingle;
  return stages * chunk + values + kSmall;
}

void launches(const Call& c, Launches& go) {
  const bool has_final = c.flag("output_final_state");
  linear::ChunkSpec s{};
  s.has_tokens = c["S"] > 0;
  s.has_pool = c.has("pool");
  s.reads_state = s.has_pool || c.has("initial_state");
  s.writes_state = s.has_pool || has_final;
  if (c["B"] == 0 || c["hv"] == 0 || (!s.has_tokens && !s.writes_state)) return;
  s.dtype = c.dtype("q");
  s.state_dtype = s.has_pool ? c.dtype("pool") : DType::f32;
  s.has_read_slots = c.has("read_slots"), s.has_write_slots = c.has("write_slots");
  s.dk = c.i32("dk"), s.dv = c.i32("dv"), s.groups = 1;
  if (!s.has_tokens) return go.add(linear::build_chunks, s, {}, "states");
  s.has_norm = c.flag("qk_norm"), s.has_lengths = c.has("lengths");
  const Workspace w(c);
  int64_t begin = 0;
  const auto work = [&](DType dtype, const Dims& shape, int64_t elements) {
    // As an integer: a dry call has a workspace without memory.
    const auto address = reinterpret_cast<uintptr_t>(c.given("workspace").data);
    void* data = reinterpret_cast<void*>(address + static_cast<uintptr_t>(begin * kSingle));
    begin += elements;
    return TensorView{data, dtype, shape, c.device()};
  };
  const TensorView a = work(s.dtype, {w.places, kC, kC}, w.triangle);
  const TensorView p = work(s.dtype, {w.places, kC, kC}, w.triangle);
  const Dims of_normed = {c["B"], chunks_of(c) * kC, c["h"], c["dk"]};
  const TensorView q_normed = work(s.dtype, of_normed, w.normed);
  const TensorView k_normed = work(s.dtype, of_normed, w.normed);
  const TensorView decays = work(DType::f32, {w.places, 2 * kC}, w.decays);
  const int64_t of_keys =
      std::gcd(common_vector(c.given("q"), kWidest), common_vector(c.given("k"), kWidest));
  linear::PrepareSpec first{};
  first.dtype = s.dtype, first.beta_dtype = c.dtype("beta");
  first.has_norm = s.has_norm, first.has_lengths = s.has_lengths;
  first.row_width = static_cast<uint8_t>(of_keys), first.dk = s.dk;
  first.blocks = jit::has_wgmma(c.device()) ? 5 : 4;  // with five mma.sync spills
  Args prepared{.tensors = {{"a", a}, {"p", p}, {"decays", decays}},
                .scalars = {{"scale", attention::scale_of(c)}}};
  if (s.has_norm) {
    prepared.tensors.push_back({"q_normed", q_normed});
    prepared.tensors.push_back({"k_normed", k_normed});
  }
  go.add(linear::build_prepare, first, prepared, "prepare");
  const int64_t of_rows = s.has_norm ? kWidest : of_keys;
  s.row_width = static_cast<uint8_t>(std::gcd(of_rows, common_vector(c.given("v"), kWidest)));
  s.out_width = static_cast<uint8_t>(common_vector(c.given("out"), kWidest));
  s.by_roles = jit::has_wgmma(c.device()) && s.row_width == kWidest && s.out_width == kWidest;
  // Blocks of 64 columns load q, k, A and P of a head twice, those of 128 leave multiprocessors idle.
  const bool is_large = 2 * c["B"] * c["hv"] > jit::num_sms(c.device());
  if (s.by_roles && s.dv == 128 && is_large) s.groups = 2;
  // On an H200, us, with two stages and with three: 32 heads of one request 863, 822; 4 x 32 heads 564, 574.
  const int64_t most = s.by_roles && s.groups == 1 ? 3 : 2;
  for (int64_t stages = most; s.stages == 0; --stages) {
    const bool fits = bytes_of(s, stages) <= jit::shared_memory_limit(c.device());
    if (fits || stages == 1) s.stages = static_cast<uint8_t>(stages);
  }
  Args args{.tensors = {{"a", a}, {"p", p}, {"decays", decays}},
            .scalars = {{"scale", attention::scale_of(c)}}};
  if (s.has_norm) {
    args.tensors.push_back({"q", q_normed}), args.tensors.push_back({"k", k_normed});
  }
  const Dims parts = {c["B"], c["S"], c["hv"], s.dv / linear::kColumns, linear::kColumns};
  args.tensors.push_back({"v", reshaped(c.given("v"), parts)});
  args.tensors.push_back({"out", reshaped(c.given("out"), parts)});
  go.add(linear::build_chunks, s, args, "chunks");
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
      workspace        f32 [elements()] align 16
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
    .functions = {{"elements", workspace_elements}},
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
