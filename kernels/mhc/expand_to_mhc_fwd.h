#pragma once
// The first residual streams of a model.

#include "kernels/op.h"

namespace tessera::kernels {

struct ExpandToMhcOptions {
  int64_t mhc_mult = 4;  // streams, at least 1
};

/// Copies each row into every stream: out[t, i, :] = x[t, :], bits unchanged.
///
///   x     bf16   [tokens, hidden]             contiguous
///   out   bf16   [tokens, mhc_mult, hidden]   contiguous
///
/// Tokens may have several dimensions.
///
/// Errors:  kind argument if a shape, dtype, stride or device disagrees or out overlaps x;
///          kind unsupported beyond 65536 streams.
/// Example: expand_to_mhc_fwd(x, out, {.mhc_mult = 4}, stream);
void expand_to_mhc_fwd(const TensorView& x, const TensorView& out,
                       const ExpandToMhcOptions& options, Stream stream);

const OpInfo& expand_to_mhc_fwd_op();

}  // namespace tessera::kernels
