#pragma once
// Matrix products by definition, with the sums of the tensor cores of sm_90.

#include <span>
#include <vector>

#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// out[m, n] = bias[n] + the sum over k of a[m, k] * b[n, k], in steps of 16 of k.
///
///   a, b      bf16 [M, K], [N, K]
///   bias      f32 [N]; null: none
///   returns   out_dtype [M, N]
test::HostTensor gemm_bf16(const test::HostTensor& a, const test::HostTensor& b,
                           const test::HostTensor* bias, DType out_dtype);

/// One product of block-scaled matrices. Of each 128 of k, the part sum over steps of 32, which keeps 13
/// bits, then sum = fma(part, a_sf[m, k / 128] * b_sf[n / 128, k / 128], sum) in f32.
///
///   a, b         e4m3 [slabs, M, K], [groups, N, K]
///   a_sf, b_sf   f32 [slabs, M, ceil(K / 128)], [groups, ceil(N / 128), ceil(K / 128)]
struct ScaledOperands {
  const test::HostTensor &a, &a_sf, &b, &b_sf;
};

/// gemm_fp8_block: out_dtype [M, N] of matrices without the first dimension.
test::HostTensor gemm_fp8_block(const ScaledOperands& operands, DType out_dtype);

/// gemm_fp8_grouped: row m by the matrix groups[m] of b; where that is none of 0 .. G - 1, `out` stays.
///
///   out   bf16 [M, N]
test::HostTensor gemm_fp8_grouped(const ScaledOperands& operands,
                                  const std::vector<int64_t>& groups, test::HostTensor out);

/// The groups of rows by m_indices, i32 [M]. Where `alignment` is a multiple of 128, rows of 128 that name several
/// groups have none.
std::vector<int64_t> groups_by_ids(const test::HostTensor& m_indices, int64_t alignment);

/// The groups of rows by psum, i32 [G]: group g has the rows from the end of the group before, rounded up to a
/// multiple of `alignment`, to psum[g]. An end below the one before counts as that one.
std::vector<int64_t> groups_by_ends(const test::HostTensor& psum, int64_t alignment, int64_t rows);

/// gemm_fp8_masked: rows below masked_m[g] of matrix g by matrix g of b; the others of `out` stay.
///
///   masked_m   i32 [G]
///   out        bf16 [G, Mmax, N]
test::HostTensor gemm_fp8_masked(const ScaledOperands& operands, const test::HostTensor& masked_m,
                                 test::HostTensor out);

/// gemm_fp8_k_grouped: out[g] += the product over k_offsets[g] .. k_offsets[g + 1] - 1, where a and b have
/// scales for 1 x 128 elements. Out stays where the offsets are no ascending multiples of 128 within K,
/// and where a group is empty.
///
///   a, b         e4m3 [M, K], [N, K]
///   a_sf, b_sf   f32 [ceil(K / 128), M], [ceil(K / 128), N]
///   k_offsets    i32 [G + 1]
///   out          f32 [G, M, N]
test::HostTensor gemm_fp8_k_grouped(const ScaledOperands& operands,
                                    const test::HostTensor& k_offsets, test::HostTensor out);

/// The reference of an op of the family, or null if it is none.
Runner gemm_runner(const std::string& op);

}  // namespace tessera::reference
