#pragma once
// The kernel of topk_select: the best scores of a row, exactly, by one block or one cluster.

#include <cstdint>

#include "dsl/ir/tile.h"

namespace tessera::kernels::serving {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectCluster = 8;

struct SelectSpec {
  int32_t topk;
  int32_t keys;         // that a thread holds at a time
  int32_t cluster;      // blocks per row, 1 or kSelectCluster
  uint8_t score_bytes;  // 4: f32, 2: bf16
  bool streams;         // the row is read again in each round; else the threads hold all of it
  bool is_aligned;      // rows begin at multiples of 16 bytes and end there
  bool by_value;
  bool has_starts, has_lengths, has_pages;
  bool is_relative, saves_raw, saves_values;
  uint8_t reserved[2] = {};
};

/// Scores of a row that the threads of so many blocks hold at once.
inline constexpr int64_t scores_held(int64_t keys, int64_t blocks) {
  return kSelectThreads * keys * blocks;
}

/// Tensors: scores f32 or bf16 [rows, cols], its rows apart by scores_stride; lengths and starts i32
/// [rows]; page_table i32 [rows, pages], apart by page_table_stride; indices, raw_indices i32 [rows,
/// topk]; values as scores [rows, topk]. Scalar, with pages: page_shift, the binary logarithm of their
/// size.
ir::Kernel build_select(const SelectSpec& s);

}  // namespace tessera::kernels::serving
