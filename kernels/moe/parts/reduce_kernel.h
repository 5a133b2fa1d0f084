#pragma once
// The kernel of reduce_fused.

#include "dsl/ir/tile.h"

namespace tessera::kernels::moe {

/// How threads share a row of columns.
struct Walk {
  uint8_t runs;   // vectors per thread
  uint8_t slots;  // rows that a thread loads before it adds them
  int16_t threads;
};

/// Everything that generated code depends on.
struct ReduceSpec {
  DType in, out;
  bool has_x_sf, has_weights, has_sf;
  uint8_t vector;  // columns of a vector
  uint8_t align;   // bytes of x and out, at most 16
  uint8_t unused = 0;
  Walk walk;
  int32_t hidden, num_topk;  // num_topk 0: there are no positions
};

/// 128 to 256 threads along a row of `vectors` where they divide it (7168 = 4 x 224 x 8), fewer along
/// a short row.
Walk pick_walk(int64_t tokens, int64_t vectors);

/// Tensors: out; x and token_topk_to_pos if there are positions; x_sf, topk_weights and sf if the
/// Spec has them.
ir::Kernel build_reduce(const ReduceSpec& s);

}  // namespace tessera::kernels::moe
