#pragma once
// The kernel of topk_select, candidate_blocks and sparse_mqa_topk: the exact top-k of a row, by one block or one cluster.

#include <algorithm>
#include <cstdint>

#include "dsl/ir/tile.h"

namespace tessera::kernels::serving {

/// Surplus candidates that a selection may leave: another round would cost more.
inline constexpr int kFewWords = 64;
/// Scores per thread and step where room is short.
inline constexpr int kSelectStep = 4;

/// The meaning of a column of a row.
enum class SelectFrom : uint8_t {
  scores,  // a score
  maxima,  // the largest score of a block; the last block is chosen whatever its scores
  blocks,  // the score of a key of a block that the row names
};

struct SelectSpec {
  int32_t topk;           // of maxima without the last block; at least 1
  int32_t threads;        // of a block
  int32_t keys;           // scores per thread and chunk
  int32_t room;           // candidates that a block can hold, at least least_room()
  int32_t cluster;        // blocks per row
  int32_t blocks_per_sm;  // launch bound
  uint8_t score_bytes;    // 4: f32, 2: bf16
  bool is_aligned;        // rows begin and end at multiples of 16 bytes
  bool has_one_chunk;     // each block has at most one chunk
  bool by_value;
  bool has_starts, has_lengths, has_pages;
  bool is_relative, saves_raw, saves_values;
  SelectFrom from;
  uint8_t block_shift;   // log2 of the scores of a block
  bool takes_last;       // of maxima: the last block and no other
  bool has_out_table;    // page_table is the argument out_page_table
  bool has_known_range;  // another kernel reports starts and lengths out of range
  bool has_table_rows;   // table_row says which row of the table a row has

  /// Columns that a thread loads at once.
  int64_t vector() const { return from == SelectFrom::maxima ? 1 : 16 / score_bytes; }
  int64_t outputs() const { return from != SelectFrom::maxima ? topk : takes_last ? 1 : topk + 1; }
  int64_t chunk() const { return int64_t{threads} * keys; }
  /// Room for kSelectStep more scores per thread after a selection.
  int64_t least_room() const { return topk + kFewWords + int64_t{threads} * kSelectStep; }
  /// Most candidates that the first block of a cluster takes from all blocks. Random scores of one chunk
  /// per block send about 1.5 topk words; the rest is for small topk and equal scores.
  int64_t most_sent() const {
    return cluster > 1 ? std::min<int64_t>(6 * int64_t{topk} + 1024, 12288) : 0;
  }
  int64_t list_size() const;
  int64_t shared_bytes() const;
};

/// Tensors: scores f32 or bf16 [rows, cols], row stride scores_stride; lengths and starts i32 [rows];
/// page_table i32 [rows, pages], row stride page_table_stride; indices, raw_indices i32 [rows, topk];
/// values as scores [rows, topk]; table_row i32 [rows]. Scalars, with pages: page_shift, log2 of the page size, and rows_of_table, the rows that
/// share a row of the table. Of maxima: indices i32 [rows, outputs()]. Of blocks: blocks i32 [rows, blocks_of_row]; only
/// columns above -inf are chosen.
ir::Kernel build_select(const SelectSpec& s);

}  // namespace tessera::kernels::serving
