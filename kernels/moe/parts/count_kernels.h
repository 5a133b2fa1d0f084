#pragma once
// The kernels that count ids: one for few ids; for any number one over chunks, and one that adds up
// the chunks.

#include "dsl/ir/tile.h"

namespace tessera::kernels::moe {

/// One block counts as many ids as its threads hold.
inline constexpr int kCountThreads = 1024;
inline constexpr int64_t kIdsPerThread = 4;
inline constexpr int64_t kMaxBlockIds = kCountThreads * kIdsPerThread;
/// Two kernels over chunks count any number of ids.
inline constexpr int kChunkThreads = 512;
inline constexpr int64_t kIdsPerChunk = kChunkThreads * kIdsPerThread;
/// Most groups that a block has counters for; more groups take more blocks.
inline constexpr int64_t kGroupsPerBlock = 8192;

enum class CountPhase : uint8_t {
  block,  // everything, one block
  chunk,  // counts of every chunk
  total,  // their sums over the chunks
};

struct CountSpec {
  int32_t num_groups;
  CountPhase phase;
  bool has_ids;
  bool is_fraction;  // aux_fi: f32 count * num_groups / slots, else i32 counts
  uint8_t vector;    // ids per load, a divisor of the slots
};

/// Tensors in order: `ids` i64 [slots] if there are ids (not in the phase total); partials i32
/// [num_groups, chunks] in the phases chunk and total; out [num_groups] in all phases but chunk.
/// Scalar of a phase that writes fractions of ids: expected f32, num_tokens * num_aux_topk.
ir::Kernel build_count(const CountSpec& s);        // block and chunk
ir::Kernel build_count_total(const CountSpec& s);  // total

}  // namespace tessera::kernels::moe
