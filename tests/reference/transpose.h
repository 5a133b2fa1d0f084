#pragma once
// transpose and batched_transpose by definition: elements are moved, never interpreted.

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// out[.., c, r] = x[.., r, c] for x of rank 2 or 3; out is row-major with the dtype of x.
///
/// Example: transpose(x).shape() is {C, R} for x of shape {R, C}.
test::HostTensor transpose(const test::HostTensor& x);

/// The exponents of scales f32 [.., R, C] of weight blocks, four to a word, the first in the low byte: sf0 i32
/// [.., ceil(C / 4), R block] has for each row of the weight those of its blocks, sf1 i32 [.., ceil(R / 4), C
/// block] for each column.
test::HostTensors batched_transpose_weight_sf(const test::HostTensor& sf, int64_t block);

}  // namespace tessera::reference
