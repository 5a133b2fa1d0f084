#pragma once
// From a call of an op with block-scaled 8-bit operands to its kernel.

#include "kernels/gemm/parts/fp8_kernel.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::gemm {

/// Adds the kernel of a call with tensors a, a_sf, b, b_sf, out and extents N and K.
void add_fp8(const Call& c, Launches& go, Groups groups);

/// The form of a call that has psum, or m_indices and alignment. An alignment that is a multiple of 128 promises one
/// group in 128 rows.
Groups groups_of_rows(const Call& c);

/// Throws unless psum ascends within the rows, or all of 128 rows that have a group have the same where the alignment
/// promises it. Tensors in GPU memory are not read.
void require_groups_of_rows(const Call& c);

}  // namespace tessera::kernels::gemm
