#pragma once
// Rows of quantised tokens and their scales, copied to the positions of their experts.

#include "kernels/op.h"
#include "kernels/quant/scale_layout.h"

namespace tessera::kernels {

struct ExpandToFusedWithSfOptions {
  int64_t num_per_channels = 128;  // columns per scale: 32 or 128
  SfLayout sf_layout = SfLayout::row_major;
};

/// Copies row t of `x` and its scales to every position of token t, and fills the rows of positions
/// without a token with zeros. Bytes are moved, never interpreted. C = ceil(hidden /
/// num_per_channels).
///
///   x                   e4m3       [tokens, hidden]      contiguous; or i8 [tokens, hidden / 2],
///                                                        two e2m1 codes per byte
///   x_sf                f32        [tokens, C]           any strides; or i32 [tokens, ceil(C / 4)],
///                                                        four exponents per word
///   token_topk_to_pos   i32        [tokens, num_topk]    -1: no position
///   pos_to_expert       i32        [positions]           negative: the position is padding
///   out                 as x       [positions, hidden]   contiguous
///   out_sf              as x_sf    [positions, ...]      in `sf_layout`, padding of its storage 0
///
/// Positions beyond the last are dropped. Two pairs that map to one position are invalid; rows that
/// are neither mapped nor padding are unspecified.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees, num_per_channels is
///          neither 32 nor 128, or packed_ue8m0 is asked for f32 scales or another layout for i32;
///          on CPU tensors also for a position that does not exist or is not that of one pair.
/// Example: expand_to_fused_with_sf(x, x_sf, token_topk_to_pos, pos_to_expert, out, out_sf,
///                                  {.num_per_channels = 128}, stream);
void expand_to_fused_with_sf(const TensorView& x, const TensorView& x_sf,
                             const TensorView& token_topk_to_pos, const TensorView& pos_to_expert,
                             const TensorView& out, const TensorView& out_sf,
                             const ExpandToFusedWithSfOptions& options, Stream stream);

const OpInfo& expand_to_fused_with_sf_op();

}  // namespace tessera::kernels
