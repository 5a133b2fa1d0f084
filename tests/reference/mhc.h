#pragma once
// The hyper-connection ops by definition, one element at a time. Where the specification fixes an
// order of roundings the steps are those of the specification, in f32; the rest is in f64.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// The input of a sub-layer: fma over the streams from +0, one rounding to bf16.
///
///   x         bf16 [.., n, H]
///   mix       f32  [.., n]
///   returns   bf16 [.., H]
///
/// Example: streams {1, 2} with mix {0.5, 0.25} give 1.
test::HostTensor pre_apply_mix_fwd(const test::HostTensor& x, const test::HostTensor& mix);

}  // namespace tessera::reference
