#pragma once
// The kernel of reduce_fused and combine_reduce.

#include <array>

#include "dsl/ir/tile.h"

namespace tessera::kernels::moe {

/// How threads share a row of columns.
struct Walk {
  uint8_t runs;   // vectors per thread
  uint8_t slots;  // rows that a thread loads before it adds them
  int16_t threads;
};

enum class ReduceForm : uint8_t {
  reduce,        // reduce_fused
  combine,       // combine_reduce: rows of x have any stride, `pos` names them
  combine_base,  // sums begin at the rows of `base`
};

/// Everything that generated code depends on.
struct ReduceSpec {
  DType in, out;
  bool has_x_sf, has_weights, has_sf;
  uint8_t vector;  // columns of a vector
  uint8_t align;   // bytes of x and out, at most 16
  ReduceForm form = ReduceForm::reduce;
  Walk walk;
  bool has_num_tokens = false;  // of combine_reduce
  std::array<uint8_t, 3> unused = {};
  int32_t hidden, num_topk;  // num_topk 0: there are no positions
};

/// 128 to 256 threads along a row of `vectors` where they divide it (7168 = 4 x 224 x 8), fewer along
/// a short row.
Walk pick_walk(int64_t tokens, int64_t vectors);

/// Tensors: out; x and token_topk_to_pos, or pos, if there are positions; x_sf, topk_weights, sf, base and
/// num_tokens if the Spec has them.
ir::Kernel build_reduce(const ReduceSpec& s);

}  // namespace tessera::kernels::moe
