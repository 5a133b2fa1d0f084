#pragma once
// The sizes of the model, small enough for the executor. The bounds that ops set stand beside them.

#include <cstdint>

namespace model {

inline constexpr int64_t kVocabulary = 256;  // a token is a byte
inline constexpr int64_t kHidden = 512;      // engram_gate_fwd: at least 512
inline constexpr int64_t kStreams = 4;       // mhc_boundary: 4
inline constexpr int64_t kContext = 256;     // the most tokens of a text

// Attention: all heads share one key, whose channels are the value too.
inline constexpr int64_t kHeads = 8;       // sparse_mla_fwd: a multiple of 8
inline constexpr int64_t kChannels = 512;  // sparse_mla_fwd: 512 or 576
inline constexpr int64_t kRotated = 64;    // the last channels
inline constexpr int64_t kWindow = 32;     // the newest tokens, each with a key of its own
inline constexpr int64_t kEntries = 16;    // compressed entries that a token sees at most
inline constexpr int64_t kKeys = kWindow + kEntries;

// The indexer chooses the entries of ratio 4.
inline constexpr int64_t kIndexHeads = 8;       // paged_mqa_logits: a multiple of 8
inline constexpr int64_t kIndexChannels = 128;  // 32, 64 or 128

// Experts, behind which stands one more, for every token.
inline constexpr int64_t kExperts = 8, kShared = 1, kChosen = 2;
inline constexpr int64_t kInner = 128;  // moe_forward: a multiple of 128 in e4m3

// Engram: tables of the last two and of the last three tokens.
inline constexpr int64_t kNgram = 3, kTablesOfNgram = 2, kTableColumns = 64;
inline constexpr int64_t kEngram = (kNgram - 1) * kTablesOfNgram * kTableColumns;

// Caches: pages of 16 keys in every layer, and a ring of raw rows for the compressor of each request.
inline constexpr int64_t kPageSize = 16;  // topk_select: a power of two
inline constexpr int64_t kPages = 96, kRings = 4;
inline constexpr int64_t kRing4 = 8, kRing128 = 128;
inline constexpr int64_t kEntries4 = kContext / 4, kEntries128 = kContext / 128;
inline constexpr int64_t kPages4 = kEntries4 / kPageSize, kPages128 = 1;
static_assert(kEntries128 <= kPageSize && kEntries128 <= kEntries);

struct LayerKind {
  // Tokens of a compressed entry: 4 (CSA, the indexer chooses entries) or 128 (HCA, all are seen).
  int64_t ratio;
  bool has_engram;  // before attention
  bool by_hash;     // a table names the experts of a token; else its scores do
  bool in_fp4;      // experts in MXFP4; else in e4m3
};
inline constexpr LayerKind kLayers[] = {
    {.ratio = 4, .has_engram = false, .by_hash = true, .in_fp4 = false},
    {.ratio = 128, .has_engram = true, .by_hash = false, .in_fp4 = false},
    {.ratio = 4, .has_engram = false, .by_hash = false, .in_fp4 = true}};

/// Columns of a row of the compressor: kv and score of `channels` each, twice for the windows of ratio 4, which overlap.
constexpr int64_t compressor_columns(int64_t ratio, int64_t channels) {
  return (ratio == 4 ? 4 : 2) * channels;
}

}  // namespace model
