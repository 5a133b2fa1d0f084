#pragma once
// The gated activation between the two projections of an expert, with the cast that follows it.

#include <optional>

#include "kernels/op.h"
#include "kernels/quant/scale_layout.h"

namespace tessera::kernels {

/// Tensors of a call that may be left out (no data).
struct SwigluRows {
  TensorView pos_to_token_topk = {};  // i32 [rows]: index into topk_weights, negative: weight 0
  TensorView topk_weights = {};       // f32 [tokens, topk], contiguous; both of these or none
  TensorView pos_to_expert = {};      // i32 [rows]: negative marks padding
  TensorView clamped_count = {};      // i64 [3], added to; needs clamp_value
};

struct SwigluForwardOptions {
  int64_t num_per_channels = 128;  // columns that share a scale: 128 or all of them
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;                   // scales are rounded up to powers of two
  std::optional<float> clamp_value = {};   // > 0
  std::optional<float> sf_clamp_min = {};  // replaces 1e-4, the least amax; at least 2^-117
};

/// Writes cast(gate / (1 + exp(-gate)) * up * weight) in groups of columns: value ~ out * out_sf.
///
///   x        bf16|f32   [rows, 2 * hidden]   contiguous: gate, then up; hidden % 128 = 0
///   out      e4m3       [rows, hidden]       contiguous
///   out_sf   as sf_layout says (scale_layout.h), its padding included
///            [rows, ceil(hidden / num_per_channels)]
///
/// With clamp_value c: gate = min(gate, c), up = max(min(up, c), -c); NaN stays NaN.
/// clamped_count[0 .. 2] += how often gate > c, up > c and up < -c in rows that are not padding.
/// Padding rows of out and out_sf are all zero bytes. Scales and codes as in per_token_cast. An
/// index beyond topk_weights gives weight 0.
///
/// Errors:  kind argument if a shape, dtype, stride, option or device disagrees, outputs overlap or
///          one of two tensors that belong together is missing; on CPU tensors also for an index
///          beyond topk_weights;
///          kind unsupported for one scale per row of more than 32768 columns.
/// Example: swiglu_forward_and_per_token_cast(x, {.pos_to_expert = pos_to_expert}, out, out_sf,
///                                            {.clamp_value = 10.0f}, stream);
void swiglu_forward_and_per_token_cast(const TensorView& x, const SwigluRows& rows,
                                       const TensorView& out, const TensorView& out_sf,
                                       const SwigluForwardOptions& options, Stream stream);

const OpInfo& swiglu_forward_and_per_token_cast_op();

}  // namespace tessera::kernels
