#pragma once
// transpose and batched_transpose by definition: elements are moved, never interpreted.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// out[.., c, r] = x[.., r, c] for x of rank 2 or 3; out is row-major with the dtype of x.
///
/// Example: transpose(x).shape() is {C, R} for x of shape {R, C}.
test::HostTensor transpose(const test::HostTensor& x);

}  // namespace tessera::reference
