#pragma once
// The kernel of the indexer's logits: of keys in a row, in pages, or in chosen blocks.

#include <cstdint>

#include "dsl/builder.h"

namespace tessera::kernels::serving {

/// The tile and the form of the kernel; no bit of the result depends on them.
struct LogitsTile {
  int32_t rows;      // queries, each with all its heads: at most 256 heads in all
  int32_t keys;      // by roles 64 for each group of warps that multiplies, else 64
  int32_t stages;    // tiles of keys on their way
  int32_t by_roles;  // 1: one role loads, another multiplies
  int32_t parts;     // by roles: products of a group of warps at once, 1 or 2
};

enum class KeyPlace : int32_t {
  in_rows,   // key j is row j
  in_pages,  // of a request, whose table names the pages
};

/// Everything that generated code depends on.
struct LogitsSpec {
  KeyPlace keys;
  int32_t heads, width;        // h, D
  int32_t q_vector, k_vector;  // bytes that rows begin at multiples of
  int32_t is_bf16;             // logits; else f32
  int32_t is_clean;            // 1: columns without a key are -inf; 0: they stay as they are
  int32_t is_compressed;       // 1: the first column of a row is its first key
  int32_t page_size;           // in pages: a power of two, or 0 for any
  int32_t block_size;  // 0: columns are keys; else those of the blocks of keys that each row names
  int32_t by_wgmma;    // 1: whatever the form, so that bits are those of the target
  LogitsTile tile;
};

/// Tensors: q e4m3 [rows * heads, width]; weights f32 [rows, heads]; logits f32 or bf16 [rows, columns]. In rows: k e4m3
/// [keys, width], k_sf f32 [keys], k_start and k_end i32 [rows]. In pages: codes e4m3 [pages, page_size, width], scales f32
/// [pages, page_size, 1], page_table i32 [requests, table_columns], lengths i32 [rows]. With blocks: blocks i32 [rows,
/// blocks_of_row]; tiles have one row. Scalars: rows_of_request, and
/// chunk, the tiles of keys that a block takes at a time (i32).
ir::Kernel build_logits(const LogitsSpec& spec);

}  // namespace tessera::kernels::serving
