#pragma once
// The mixes of a sub-layer from the projected residual.

#include "kernels/op.h"

namespace tessera::kernels {

struct PreSplitMixesOptions {
  float post_mult_value = 1.0f;  // upper end of post_mix
  float pre_eps = 1e-6f;         // lower end of pre_mix
};

/// Splits each row into its mixes, with z_j = fma(input_mixes_j, scale_k, base_j) for k = 0, 1, 2:
/// pre_mix = sigmoid(z) + pre_eps of the first `streams` entries, post_mix = sigmoid(z) *
/// post_mult_value of the next, comb_logits = z of the rest.
///
///   input_mixes   f32   [tokens, streams * (streams + 2)]   contiguous
///   scale         f32   [3]
///   base          f32   [streams * (streams + 2)]
///   pre_mix       f32   [tokens, streams]                   contiguous
///   post_mix      f32   [tokens, streams]                   contiguous
///   comb_logits   f32   [tokens, streams, streams]          contiguous
///
/// Tokens may have several dimensions, the same in every tensor.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees, the columns are no
///          streams * (streams + 2) or outputs overlap.
/// Example: pre_split_mixes_fwd(input_mixes, scale, base, pre_mix, post_mix, comb_logits, {});
void pre_split_mixes_fwd(const TensorView& input_mixes, const TensorView& scale,
                         const TensorView& base, const TensorView& pre_mix,
                         const TensorView& post_mix, const TensorView& comb_logits,
                         const PreSplitMixesOptions& options, Stream stream);

const OpInfo& pre_split_mixes_fwd_op();

}  // namespace tessera::kernels
