// moe_plan: the expert-major layout of the pairs of a routing, with true counts and the ends of the experts' rows.
//
// Dtypes   topk_idx i32|i64, weights f32, the rest i32
// Method   the stable counting sort of get_fused_mapping (mapping_kernels.h): one block up to 2048 pairs, one cluster up to
//          2^16, then three kernels over chunks. Ids of tokens from num_tokens on are not read. Each pair writes its row and
//          its weight; the rows that no pair has are padding. The bound is latency.
// Maths    row = start of the expert + pairs of the expert before this one; start = the end of the expert before, rounded
//          up to a multiple of alignment

#include <algorithm>

#include "dsl/base/error.h"
#include "kernels/jit/target.h"
#include "kernels/moe/parts/mapping_kernels.h"
#include "kernels/moe/parts/mapping_values.h"
#include "kernels/moe_rows.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {

namespace {

constexpr int64_t kMostRows = 2130706431;

using moe::MappingPhase;

int64_t bound_of(int64_t pairs, int64_t experts, int64_t alignment) {
  return (pairs + (alignment - 1) * std::min(experts, pairs)) / alignment * alignment;
}

int64_t rows(const Call& c) {
  const int64_t given = c["num_rows"];
  return given > 0 ? given : bound_of(c["T"] * c["K"], c["E"], c["alignment"]);
}

void launches(const Call& c, Launches& go) {
  const int64_t pairs = c["T"] * c["K"];
  const int64_t chunks = (pairs + moe::kPairsPerChunk - 1) / moe::kPairsPerChunk;
  Args args{{}, {{"num_chunks", std::max<int64_t>(chunks, 1)}}};
  for (const char* name : {"topk_idx", "topk_weights", "pair_to_pos"}) {
    if (!c.has(name) && !c.writes(name)) continue;
    args.tensors.push_back({name, reshaped(c.given(name), {pairs})});
  }
  go.in_clusters([&](int limit) {
    for (const MappingPhase phase :
         moe::mapping_phases(pairs, c["E"], limit, jit::shared_memory_limit(c.device()))) {
      go.add(moe::build_mapping,
             moe::MappingSpec{.experts = c.i32("E"),
                              .topk = c.i32("K"),
                              .phase = phase,
                              .has_pairs = pairs > 0,
                              .has_positions = c["P"] > 0,
                              .fills = true,
                              .is_plan = true,
                              .has_narrow_ids = c.dtype("topk_idx") == DType::i32,
                              .has_num_tokens = c.has("num_tokens"),
                              .has_weights = c.has("topk_weights"),
                              .saves_ids = c.flag("save_m_indices")},
             args);
    }
  });
}

/// The expert of a pair of a case: experts take turns.
int64_t expert_of(const Case& c, int64_t pair) {
  return pair % c["num_experts"];
}

}  // namespace

int64_t moe_rows(int64_t num_tokens, int64_t num_topk, int64_t num_experts, int64_t alignment) {
  const ArgCheck check("moe_rows");
  const auto need = [&](const char* name, int64_t value, int64_t least) {
    check.require(value >= least && value <= kMostRows, name,
                  "argument '" + std::string(name) + "' is out of range",
                  std::to_string(least) + " .. " + std::to_string(kMostRows),
                  std::to_string(value));
  };
  need("num_tokens", num_tokens, 0);
  need("num_topk", num_topk, 0);
  need("num_experts", num_experts, 0);
  need("alignment", alignment, 1);
  need("num_tokens", num_tokens * num_topk, 0);
  const int64_t rows = bound_of(num_tokens * num_topk, num_experts, alignment);
  need("alignment", rows, 0);
  return rows;
}

const Op moe_plan_op{
    .name = "moe_plan",
    .family = "serving",
    .purpose = "rows of experts for the pairs of a routing, with true counts and ends",
    .signature = R"(
      topk_idx         i32/i64 [T, K]      # an expert, or -1
      topk_weights?    f32 [T, K]
      num_tokens?      i32 [1]             # tokens from here on have no expert
      -> pos_to_pair   i32 [P]             # t * K + k of each row, -1 in padding; P is num_rows, or moe_rows(T, K, E, alignment)
      -> pair_to_pos   i32 [T, K]          # the row of each pair, -1 without one
      -> psum          i32 [E]             # the end of each expert's rows, which begin at a multiple of alignment
      -> counts        i32 [E]             # rows of each expert without padding
      -> row_weights?  f32 [P]             iff topk_weights  # 0 in padding
      -> m_indices?    i32 [P]             iff save_m_indices  # the expert of each row, -1 in padding
      param  num_experts int 1..1024
      param  alignment int >= 1
      param  num_rows int >= 0 = 0         # 0: as many as any ids need
      param  save_m_indices bool = false
      let    E = num_experts
      let    P = moe_rows()
      need   num_rows <= 2130706431
      need   alignment <= 2130706431 / E
      limit  T * K <= 16777216 on topk_idx "'topk_idx' has too many pairs"
      limit  T * K + (alignment - 1) * E <= 2130706431 on topk_idx "'topk_idx' has too many pairs"
      bucket T * K at 2049, 65537               # one block, one cluster, three kernels
    )",
    .launches = launches,
    .check_values = moe::require_plan,
    .functions = {{"moe_rows", rows}},
    .examples = R"(
      T=65 K=8 topk_idx=i64 num_experts=9 alignment=16 topk_weights=given num_tokens=given save_m_indices=true
      T=700 K=6 topk_idx=i32 num_experts=256 alignment=8
      T=9 K=2 topk_idx=i64 num_experts=1024 alignment=1 num_rows=40)",
    .bench = R"(
      T=1 K=6 topk_idx=i64 num_experts=256 alignment=8 topk_weights=given num_tokens=given
      T=64 K=6 topk_idx=i64 num_experts=256 alignment=8 topk_weights=given num_tokens=given
      T=1024 K=6 topk_idx=i64 num_experts=256 alignment=8 topk_weights=given num_tokens=given
      T=8192 K=6 topk_idx=i64 num_experts=256 alignment=8 topk_weights=given num_tokens=given)",
    .values = {{"topk_idx", expert_of},
               {"num_tokens", [](const Case& c, int64_t) { return c["T"]; }}}};

}  // namespace tessera::kernels
