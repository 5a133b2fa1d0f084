#pragma once
// The kernel that copies rows of tokens, and their scales if there are any, to the positions of their
// experts.

#include "dsl/ir/tile.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/scale_layout.h"

namespace tessera::kernels::moe {

struct ExpandSpec {
  int32_t row_bytes, scales;  // bytes of a row of x, 4-byte scales per row: 0 = no scales
  int32_t num_topk;           // 0: no tokens, all positions are padding
  int32_t align;              // bytes of x and out, at most 16
  SfLayout sf_layout;
  bool has_gaps = false;  // rows of x are further apart than they are long
  uint8_t unused[2] = {};
};

/// Tensors in order: pos_to_expert i32 [positions], out [positions, words], out_sf u32 [positions,
/// scales] or, in a column layout, [scales, positions padded to 4]; where there are tokens also x
/// [tokens, words] with a stride of rows if they have gaps, x_sf u32 [tokens, scales] of any strides and token_topk_to_pos i32 [tokens,
/// num_topk]. Rows are made of the words of row_words(). Without scales there is no x_sf and no
/// out_sf. Where there are tokens the scalar is part_stride().
ir::Kernel build_expand(const ExpandSpec& s);
/// The distance between the row parts that the warps of one block move. `positions` is the number
/// of rows written. Adjacent parts are fastest for many tokens.
int64_t part_stride(const ExpandSpec& s, int64_t tokens, int64_t positions);

/// Adds the kernel without scales of a call with tensors x, whose rows may have gaps, token_topk_to_pos, pos_to_expert and
/// out, and extents T, H, K and P.
void add_expand(const Call& c, Launches& go);

}  // namespace tessera::kernels::moe
