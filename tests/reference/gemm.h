#pragma once
// Matrix products by definition, with the sums of the tensor cores of sm_90.

#include <span>

#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// How many bits below the largest term a tensor core keeps of a term, and of the mantissa of a sum.
struct TensorCore {
  int kept = 25, stored = 23;
};

/// One instruction: c + the sum of a[i] * b[i], where a and b hold codes of `format`. A product with a
/// zero factor takes no part, nor does c = 0. Other terms are truncated toward zero to `kept` bits
/// below the largest exponent among them, where a product has the sum of its factors' exponents and a
/// subnormal factor the exponent of the smallest normal number. They are added exactly, and the sum is
/// truncated to `stored` bits of mantissa. A NaN is 0x7FFFFFFF, an empty sum +0.
///
/// Returns the bits of an f32.
uint32_t tensor_core_sum(TensorCore core, DType format, uint32_t c, std::span<const uint32_t> a,
                         std::span<const uint32_t> b);

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

/// gemm_fp8_grouped: row m by the matrix m_indices[m / 128 * 128] of b. Where that is none of 0 .. G - 1,
/// `out` stays.
///
///   m_indices   i32 [M]
///   out         bf16 [M, N]
test::HostTensor gemm_fp8_grouped(const ScaledOperands& operands, const test::HostTensor& m_indices,
                                  test::HostTensor out);

/// gemm_fp8_masked: rows below masked_m[g] of matrix g by matrix g of b; the others of `out` stay.
///
///   masked_m   i32 [G]
///   out        bf16 [G, Mmax, N]
test::HostTensor gemm_fp8_masked(const ScaledOperands& operands, const test::HostTensor& masked_m,
                                 test::HostTensor out);

/// The reference of an op of the family, or null if it is none.
Runner gemm_runner(const std::string& op);

}  // namespace tessera::reference
