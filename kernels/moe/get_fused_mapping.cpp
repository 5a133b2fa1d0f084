// get_fused_mapping: the expert-major layout of the pairs of a routing.
//
// Dtypes   topk_idx i64, the rest i32
// Method   a stable counting sort: one block up to 2048 pairs, one cluster up to 2^16, each pair in
//          a register from load to store. Beyond, and on devices without clusters of 16, three
//          kernels over chunks of 1024 to 2048 pairs: counts per chunk, sums over chunks,
//          positions. token_topk_to_pos holds the counts until the last kernel overwrites it. A few
//          bytes per pair: the bound is latency.
// Maths    position = start of the expert + pairs of the expert before this one

#include <algorithm>

#include "kernels/jit/host_copy.h"
#include "kernels/jit/target.h"
#include "kernels/moe/parts/mapping_kernels.h"
#include "kernels/moe/parts/mapping_values.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

using moe::MappingPhase;

/// True if the number of positions depends on the data: the caller then waits for it.
bool waits(const Call& c) {
  return c["num_expanded_tokens"] == 0 && !c.flag("force_no_sync");
}

/// The upper bound of the positions of any routing of this shape.
int64_t positions(const Call& c) {
  if (!waits(c)) return c["num_expanded_tokens"];
  const int64_t alignment = c["alignment"];
  return (c["T"] * c["K"] + (alignment - 1) * c["E"]) / alignment * alignment;
}

/// The actual number of positions; not read back if the caller gave it.
int64_t positions_taken(const Call& c, Stream stream) {
  if (!waits(c)) return c["P"];
  int64_t taken = 0;
  for (const int32_t n : jit::to_host<int32_t>(c.given("num_tokens_per_expert"), stream))
    taken += n;
  return taken;
}

void launches(const Call& c, Launches& go) {
  const int64_t pairs = c["T"] * c["K"];
  const int64_t chunks = (pairs + moe::kPairsPerChunk - 1) / moe::kPairsPerChunk;
  const auto flat = [&](const char* name) {
    return Args::Tensor{name, reshaped(c.given(name), {c["T"] * c["K"]})};
  };
  const Args args{{flat("topk_idx"), flat("token_topk_to_pos")},
                  {{"num_chunks", std::max<int64_t>(chunks, 1)}}};
  go.in_clusters([&](int limit) {
    for (const MappingPhase phase :
         moe::mapping_phases(pairs, c["E"], limit, jit::shared_memory_limit(c.device()))) {
      go.add(moe::build_mapping,
             moe::MappingSpec{c.i32("E"), c.i32("K"), phase, pairs > 0, c["P"] > 0, !waits(c)},
             args);
    }
  });
}

/// The expert of a pair of a case: `pairs` pairs have one, spread evenly over pairs and experts.
int64_t expert_of(const Case& c, int64_t pair) {
  const int64_t all = c["T"] * c["K"], step = pair * c["pairs"] / all;
  return step == (pair + 1) * c["pairs"] / all ? int64_t{-1} : step % c["num_experts"];
}

int64_t bytes(const Case& c) {
  const int64_t experts = c["num_experts"], alignment = c["alignment"];
  int64_t positions = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t size = (c["pairs"] - e + experts - 1) / experts;
    positions += (size + alignment - 1) / alignment * alignment;
  }
  return 12 * c["T"] * c["K"] + 12 * (std::max(positions, c["num_expanded_tokens"]) + experts);
}

}  // namespace

const Op get_fused_mapping_op{
    .name = "get_fused_mapping",
    .family = "moe",
    .purpose = "positions of the pairs of a routing, sorted by expert",
    .signature = R"(
      topk_idx                  i64 [T, K]      values -1 .. E - 1
      -> pos_to_expert, pos_to_token, pos_to_token_topk       i32 [P]
      -> token_topk_to_pos      i32 [T, K]
      -> expert_start, expert_end, num_tokens_per_expert      i32 [E]  # rows of padding included
      param  num_experts int 1..1024
      param  alignment int >= 1
      param  num_expanded_tokens int >= 0 = 0
      param  force_no_sync bool = false
      let    E = num_experts
      let    P at most positions() trimmed by positions_taken()
      limit  T * K + (alignment - 1) * E <= 2130706431 "'topk_idx' has too many pairs" # positions are i32
      need   num_expanded_tokens <= 2130706431
      need   alignment <= 2130706431 / E
      bucket T * K at 2049, 65537               # one block, one cluster, three kernels
    )",
    .launches = launches,
    .check_values = moe::require_routing,
    .functions = {{"positions", positions}},
    .trims = {{"positions_taken", positions_taken}},
    .examples = R"(
      T=65 K=8 num_experts=9 alignment=16 pairs=300
      T=700 K=6 num_experts=256 alignment=128 pairs=2000
      T=9 K=2 num_experts=1024 alignment=1 num_expanded_tokens=40 force_no_sync=true)",
    .bench = R"(
      T=7902 K=2 num_experts=9 alignment=128; T=9813 K=2 num_experts=4 alignment=128
      T=21779 K=8 num_experts=9 alignment=128; T=32506 K=8 num_experts=4 alignment=128
      T=1 K=8 num_experts=256 alignment=16 num_expanded_tokens=4104 force_no_sync=true
      T=128 K=8 num_experts=256 alignment=16 num_expanded_tokens=5120 force_no_sync=true)",
    .case_words = {{"pairs",
                    [](const Case& c) { return std::min(4001 * c["K"], c["T"] * c["K"]); }}},
    .values = {{"topk_idx", expert_of}},
    .bytes = bytes};

}  // namespace tessera::kernels
