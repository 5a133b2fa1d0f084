// gemm_fp8_block: out = a * b transposed of block-scaled e4m3 matrices, by the tensor cores.
//
// Dtypes   a and b e4m3, scales f32: of a for 1 x 128 elements, of b for 128 x 128; out bf16|f32
// Method   On sm_90a, for aligned operands: four warps load tiles by tensor copies and their scales by
//          cp.async into a ring, two groups of four (one for up to 64 rows) multiply them by wgmma: a product
//          runs while the sums of the one before are scaled and added. Three groups have tiles of 192 x 128 and
//          one part sum each. The tile is the one whose waves end soonest; each block computes tile after tile,
//          up to 1024 of k with the copy engine to write them.
//          Otherwise a pipelined loop copies ahead and multiplies by mma.sync.
// Maths    each 128 of k: a part sum from +0 by the instruction of the target (32 of k each), then one fma:
//          sum = fma(part, a_sf * b_sf, sum). One rounding to out.
// Tuned    H100, us, ours / cuBLASLt with the same scales, shape by shape in turn: M = 4096 with N x K of
//          2112 x 7168 111 / 111, 576 x 7168 37 / 45, 24576 x 1536 285 / 273, 32768 x 512 146 / 162,
//          7168 x 16384 837 / 798, 4096 x 7168 209 / 191, 7168 x 2048 110 / 100; M = 64 and 128 with
//          4096 x 7168 17 / 25, 20 / 26. Geometric mean of M = 4096: 1.00 x cuBLASLt
//          (the times of 2112 and 576 are of one later run).
//          Bound: a tile of 128 x 128 takes 33 KB from L2 per step, 9 TB/s in all. Tiles of 192 x 128: N = 2112
//          125 -> 111, 576 53 -> 37; where both fill their waves equal or up to 6 % slower. Out by the copy
//          engine: 4 to 16 % faster up to K = 1024, 3 to 6 % slower from 1536 on.
//          Slower, 7168 x 16384: clusters of 2 that copy b once by multicast 1741 (8 KiB at a time), 128 x 256
//          tiles with a scale per half 875, in four parts 2089 (spills), turns between the groups 848, 6 stages
//          858, one loading warp 879, products awaited at once 896.

#include "kernels/gemm/parts/fp8_call.h"
#include "kernels/registry/all_ops.h"

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
