#pragma once
// A stable counting sort of (token, slot) pairs by expert, each expert's range padded: get_fused_mapping and moe_plan.

#include <array>
#include <vector>

#include "dsl/ir/tile.h"

namespace tessera::kernels::moe {

inline constexpr int64_t kMaxMappedExperts = 1024;

/// One kernel for up to kMaxClusterPairs: one block, or the blocks of one cluster. More pairs want
/// more SMs: on an H200 one cluster takes 4.6 us for 16 thousand pairs, and for 174 thousand 17.7
/// where three kernels take 8.9.
inline constexpr int kMappingThreads = 1024;
inline constexpr int kMappingCluster = 16;
inline constexpr int kBlockPairsPerThread = 2;
inline constexpr int kClusterPairsPerThread = 4;
inline constexpr int64_t kMaxBlockPairs = int64_t{kMappingThreads} * kBlockPairsPerThread;
inline constexpr int64_t kMaxClusterPairs =
    int64_t{kMappingThreads} * kMappingCluster * kClusterPairsPerThread;
/// Three kernels over chunks sort any number of pairs.
inline constexpr int64_t kPairsPerChunk = 2048;  // 16 warps, 4 pairs per lane

enum class MappingPhase : uint8_t {
  block,    // all pairs, one block
  cluster,  // all pairs, one cluster
  count,    // pairs of each expert in each chunk -> the first elements of the chunk in
            // token_topk_to_pos (a chunk has at least as many pairs as there are experts)
  offset,   // one block: exclusive sums over chunks in place, expert_start, num_tokens_per_expert;
            // expert_end still without padding
  place,    // positions, padding, expert_end
};

/// Chooses the launches for `pairs` and `experts` on a device with clusters of at most
/// `cluster_limit` blocks and `shared_memory` bytes per block.
std::vector<MappingPhase> mapping_phases(int64_t pairs, int64_t experts, int cluster_limit,
                                         int64_t shared_memory);

struct MappingSpec {
  int32_t experts, topk;
  MappingPhase phase;
  bool has_pairs, has_positions;
  bool fills;            // also writes the positions after the last expert
  bool is_plan = false;  // the outputs of moe_plan
  // The rest belongs to moe_plan.
  bool has_narrow_ids = false;  // i32
  bool has_num_tokens = false, has_weights = false, saves_ids = false;
  std::array<uint8_t, 3> unused = {};
};

/// Tensors in order: topk_idx as i64 [pairs] and token_topk_to_pos as i32 [pairs] if there are pairs;
/// pos_to_expert, pos_to_token, pos_to_token_topk i32 [positions] if there are positions;
/// expert_start, expert_end, num_tokens_per_expert i32 [experts]. Scalars: alignment, num_chunks (of
/// the three kernels; else anything).
///
/// moe_plan has in their place: topk_idx as i32 or i64, num_tokens i32 [1], topk_weights f32 [pairs], pair_to_pos if
/// there are pairs; m_indices, pos_to_pair i32 and row_weights f32 [positions] if there are positions; psum and counts
/// i32 [experts].
ir::Kernel build_mapping(const MappingSpec& s);

}  // namespace tessera::kernels::moe
