// gemm_mxfp4: scaled e4m3 tokens by MXFP4 weights.
//
// Dtypes   a e4m3, weights e2m1 codes with shifts (mxfp4_prepack); out bf16 or f32
// Method   weights are the rows of the product: groups of warps decode them to registers while others multiply
//          (mxfp4_kernel.cpp)
// Maths    the part sum of each run of num_per_channels of k, by the tensor cores in steps of 32, times a_sf, or a_sf *
//          b_sf where blocks of weights have scales, added by fma; then times b_sf where rows have; then the bias. One
//          rounding to out. A row of out depends on its own row of a alone

#include "kernels/gemm/parts/mxfp4_call.h"
#include "kernels/registry/all_ops.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  gemm::add_mxfp4(c, go, gemm::MxGroups::one);
}

}  // namespace

const Op gemm_mxfp4_op{
    .name = "gemm_mxfp4",
    .family = "gemm",
    .purpose = "the product of scaled e4m3 rows and MXFP4 weights by the tensor cores",
    .signature = R"(
      a          e4m3/bf16 [M, K] rows
      a_sf?      SF(1, num_per_channels) a_sf_layout    iff a is e4m3
      b          u8 [Nt, Kt, S] align 16      # by mxfp4_prepack, as b_shift and b_sf
      b_shift    u8 [Nt, Kb, 64, 4] align 16
      b_sf       f32 [N, Fb?]                  # Fb: ceil(K / 128), of weights folded by blocks
      bias?      f32 [N]
      -> out     out_dtype [M, N] rows
      param      num_per_channels {32, 128} = 128
      param      a_sf_layout = row_major
      param      out_dtype {bf16, f32} = bf16
      need       S = 4096                     if a is e4m3 on b
      need       S = 2048                     if a is bf16 on b
      need       Nt = ceil(N / 64)            on b
      need       Kt = ceil(K / 128)           if a is e4m3 on b
      need       Kt = ceil(K / 64)            if a is bf16 on b
      need       Kb = ceil(K / 128)           on b_shift
      limit      M <= 2130706431
      limit      N <= 2130706431
      limit      K <= 2130706431
      limit      ceil(M / 8) * Nt <= 2130706431
    )",
    .launches = launches,
    .check = gemm::check_mxfp4,
    .examples = R"(
      M=9 N=100 K=160 Fb=2; M=70 N=40 K=96 bias=given num_per_channels=32 out_dtype=f32
      M=20 N=24 K=144 Fb=2 num_per_channels=32 a_sf_layout=packed_ue8m0; M=3 N=8 K=0)",
    .bench = R"(
      M=1 N=4096 K=7168 Fb=56; M=16 N=4096 K=7168 Fb=56; M=64 N=4096 K=7168 Fb=56
      M=128 N=4096 K=7168 Fb=56; M=4096 N=4096 K=7168 Fb=56; M=4096 N=4096 K=7168)",
    .case_words = {{"S", gemm::tile_bytes_of},
                   {"Nt", gemm::row_tiles_of},
                   {"Kt", gemm::depth_tiles_of},
                   {"Kb", gemm::depth_blocks_of}}};

}  // namespace tessera::kernels
