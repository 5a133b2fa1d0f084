#pragma once
// Parts of the calls of the attention ops.

#include "kernels/signature/launches.h"

namespace tessera::kernels::attention {

/// q [B, Sq, h, dk], k and v [B, Sk, g, .], out as q, lse [B, h, Sq]. With cu_q and cu_k in the call B is 1, and they
/// bound the requests.
struct ForwardTensors {
  TensorView q, k, v, out, lse;
};

/// Adds the kernel of a forward op.
void add_forward(const Call& c, const ForwardTensors& tensors, Launches& go);

/// Adds the kernel of a call without keys: all rows are empty.
void add_empty(const Call& c, Launches& go);
/// The same of these tensors; maxima, if given, become -infinity.
void add_empty_rows(const TensorView& out, const TensorView& lse, Launches& go,
                    const TensorView* maxima = nullptr);

/// [T, ..] as [1, T, ..].
TensorView one_request(const TensorView& view);

/// Strides of extents of 1 do not count: those that several would have.
TensorView packed(TensorView view);

}  // namespace tessera::kernels::attention
