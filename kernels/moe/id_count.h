#pragma once
// How often each id occurs in the slots of a routing: group_count, and aux_fi, which scales it.

#include "dsl/ir/tile.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::moe {

/// One kernel for as many ids as the threads of a block hold.
inline constexpr int kCountThreads = 1024;
inline constexpr int64_t kIdsPerThread = 4;
inline constexpr int64_t kMaxBlockIds = kCountThreads * kIdsPerThread;
/// Two kernels over chunks of ids for any number.
inline constexpr int kChunkThreads = 512;
inline constexpr int64_t kIdsPerChunk = kChunkThreads * kIdsPerThread;
/// Groups that a block has counters for; more are counted by more blocks.
inline constexpr int64_t kGroupsPerBlock = 8192;

enum class CountPhase : uint8_t {
  block,    // everything, one block
  chunk,    // counts of every chunk
  total,    // their sums over the chunks
};

struct CountSpec {
  int32_t num_groups;
  CountPhase phase;
  bool has_ids;
  bool is_fraction;  // aux_fi: f32 count * num_groups / slots, else i32 counts
  uint8_t vector;    // ids per load, a divisor of the slots
};

/// Tensors in order: where there are ids `ids` i64 [slots] (not in the phase total); partials i32
/// [num_groups, chunks] of the phases chunk and total; out [num_groups] of the others and total.
/// Scalar of fractions, where they are made of ids: expected f32, num_tokens * num_aux_topk.
ir::Kernel build_count(const CountSpec& s);

/// The launches of both ops: of `ids` an input i64 [T, K], into `out`.
void count_ids(const Call& c, Launches& go, const char* ids);
/// Elements of the workspace, i32.
int64_t count_elements(const Call& c);

/// Ids for cases: spread over the groups, every eighth slot empty.
int64_t spread_id(int64_t slot, int64_t num_groups);

}  // namespace tessera::kernels::moe
