#pragma once
// The indexer by definition: scores of keys, blocks of the best keys, the best keys of all or of some blocks.

#include "tests/reference/ops.h"
#include "tests/reference/topk_select.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// A mistake that a kernel could make; `none` is right.
enum class LogitsMistake : uint8_t {
  none,
  last_head_missing,  // of each row
  negative_counts,    // no max(.., 0)
  nan_counts,         // max(NaN, 0) = NaN
  scale_before_sum,   // of the key, times each product
  first_scale,        // that of the key before
  weight_of_next,     // of the row behind
  end_seen,           // key k_end counts
  start_missing,      // key k_start does not
  last_unclean,       // the last column is never cleaned
  from_first_column,  // compressed rows begin at column k_start
  next_page,          // the page behind in the table
  pages_of_64,        // whatever page_size says
};

/// Scores of all keys of a row, one after the other: see mqa_logits.cpp. Sums of heads by the tensor cores.
///
///   q          e4m3 [S, h, D]
///   k          e4m3 [T, D]
///   k_sf       f32 [T]
///   weights    f32 [S, h]
///   k_start, k_end   i32 [S], cut to 0 .. T
struct LogitsOptions {
  DType dtype = DType::f32;
  bool is_compressed = false, is_clean = true;
  int64_t max_len = 0, page_size = 64;
  LogitsMistake mistake = LogitsMistake::none;
};
/// [S, T], or [S, max_len] from the first key of each row on. Columns without a key are -inf, or unset.
test::HostTensor mqa_logits(const test::HostTensors& in, const LogitsOptions& options);

/// Scores of keys in pages of index_fp8: [B * n, max_len].
///
///   q            e4m3 [B, n, h, D]
///   cache        u8 [P, page_size * (D + 4)]
///   weights      f32 [B * n, h]
///   lengths      i32 [B, n], cut to 0 .. max_len
///   page_table   i32 [B, Q]; keys without a page have -inf
test::HostTensor paged_mqa_logits(const test::HostTensors& in, const LogitsOptions& options);

/// A mistake about blocks of keys; `none` is right.
enum class BlocksMistake : uint8_t {
  none,
  no_newest,        // its block is as good as its scores
  newest_by_score,  // its block takes part with +inf: a real +inf with a lower id comes first
  by_score,         // the list in the order of scores
  lowest_taken,     // blocks of -inf fill the list
  later_tie,        // of equal blocks the later one
  half,             // scores as f16
  length_cut,       // the last block does not count if it is no whole one
  twice,            // a block that is listed twice counts twice
  all_seen,         // keys behind the length of a row count
  first_of_block,   // a block has the score of its first key
};

/// The num_blocks blocks of block_size keys with the largest scores, ascending; the block of key lengths - 1 among them.
///
///   scores    f32 or bf16 [B, L]
///   lengths   i32 [B], cut to 0 .. L
///   returns   i32 [B, num_blocks], -1 behind the last
test::HostTensor candidate_blocks(const test::HostTensor& scores, const test::HostTensor& lengths,
                                  int64_t num_blocks, int64_t block_size,
                                  BlocksMistake mistake = BlocksMistake::none);

/// mqa_logits or, for a cache, paged_mqa_logits of the keys of blocks i32 [S, C]: f32 [S, C * block_size], -inf for
/// keys that a row does not see. The queries are q [S, h, D]; those of a request share a row of page_table.
test::HostTensor sparse_mqa_logits(const test::HostTensors& in, int64_t block_size,
                                   int64_t page_size);

/// The reference of an op that chooses blocks or among them, with a mistake.
Runner mistaken_blocks(const std::string& op, BlocksMistake mistake);
/// The reference of an op of the indexer, or null if it is none.
Runner indexer_runner(const std::string& op);
/// That of an op with logits and a mistake.
Runner mistaken_logits(const std::string& op, LogitsMistake mistake);

}  // namespace tessera::reference
