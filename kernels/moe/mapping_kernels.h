#pragma once
// A counting sort of (token, slot) pairs by expert, stable, every expert's range padded: as one
// block where the pairs are few, else as three kernels over chunks of pairs.

#include "dsl/ir/tile.h"

namespace tessera::kernels::moe {

inline constexpr int64_t kMaxMappedExperts = 1024;
inline constexpr int64_t kPairsPerBlock = 2048;  // 8 warps, 8 pairs per lane

enum class MappingPhase : uint8_t {
  whole,   // everything, one block
  count,   // pairs of each expert in each chunk -> the first elements of the chunk in
           // token_topk_to_pos (a chunk has at least as many pairs as there are experts)
  offset,  // one block: exclusive sums over chunks in place, expert_start, num_tokens_per_expert;
           // expert_end still without padding
  place,   // positions, padding, expert_end
};

struct MappingSpec {
  int32_t experts, topk;
  MappingPhase phase;
  bool has_pairs, has_positions;
  uint8_t unused = 0;
};

/// Tensors in order: topk_idx as i64 [pairs] and token_topk_to_pos as i32 [pairs] if there are pairs;
/// pos_to_expert, pos_to_token, pos_to_token_topk i32 [positions] if there are positions;
/// expert_start, expert_end, num_tokens_per_expert i32 [experts]. Scalars: alignment, num_chunks.
ir::Kernel build_mapping(const MappingSpec& s);

}  // namespace tessera::kernels::moe
