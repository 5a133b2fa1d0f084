// gemm_fp8_block: out = a * b transposed of block-scaled e4m3 matrices, by the tensor cores.
//
// Dtypes   a and b e4m3, scales f32: of a for 1 x 128 elements, of b for 128 x 128; out bf16|f32
// Method   On sm_90a, for aligned operands: one warp loads tiles by tensor copies into a ring, two groups of
//          four warps multiply them by wgmma; each block computes tile after tile. Otherwise a pipelined loop
//          copies ahead and multiplies by mma.sync.
// Maths    each 128 of k: a part sum from +0 by the instruction of the target (32 of k each), then one fma:
//          sum = fma(part, a_sf * b_sf, sum). One rounding to out.
// Tuned    not yet

#include "kernels/all_ops.h"
#include "kernels/gemm/fp8_call.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  gemm::add_fp8(c, go, gemm::Groups::one);
}

}  // namespace

const Op gemm_fp8_block_op{
    .name = "gemm_fp8_block",
    .family = "gemm",
    .purpose = "the product of two block-scaled e4m3 matrices by the tensor cores",
    .signature = R"(
      a       e4m3 [M, K] rows
      a_sf    SF(1,128) a_sf_layout
      b       e4m3 [N, K] rows
      b_sf    SF(128,128)
      -> out  out_dtype [M, N] rows
      param   a_sf_layout {row_major, col_major_tma} = row_major
      param   out_dtype {bf16, f32} = bf16
      limit   M <= 2130706431
      limit   N <= 2130706431
      limit   K <= 2130706431
    )",
    .launches = launches,
    .examples = R"(
      M=200 N=320 K=384; M=130 N=100 K=80 out_dtype=f32 a_sf_layout=col_major_tma; M=7 N=33 K=65
      M=9 N=24 K=0)",
    .bench = R"(
      M=4096 N=2112 K=7168; M=4096 N=576 K=7168; M=4096 N=24576 K=1536; M=4096 N=32768 K=512
      M=4096 N=7168 K=16384; M=4096 N=4096 K=7168; M=4096 N=7168 K=2048
      M=1 N=4096 K=7168; M=64 N=4096 K=7168; M=128 N=4096 K=7168)"};

}  // namespace tessera::kernels
