// gemm_fp8_masked: a gemm_fp8_block per group, of its first masked_m[g] rows. Rows from there on are
// padding and keep what out holds.
//
// Dtypes   as gemm_fp8_block; out bf16
// Method   as gemm_fp8_block; the tiles of the rows that count are numbered group after group, and blocks take them
//          in turn, so no block looks at padding and all end together
// Maths    as gemm_fp8_block
// Tuned    as gemm_fp8_block; one H200, us, 6 groups of about 1024 rows: 6144 x 7168 550, 7168 x 3072 265, 4096 x
//          4096 216; 32 of about 192: 706, 375, 290; 32 of about 20: 388, 200, 154, which reads the weights at
//          90 % of the copy rate. Lost: a block takes a column of tiles of a group, 659, 346, 309; 778, 398, 312;
//          376, 194, 149: 192 columns of 8 tiles each are 1.45 rounds of 132 blocks. The group looked for by every
//          thread in memory, without telling the compiler that a warp agrees: 788 for 550.

#include <algorithm>

#include "kernels/gemm/parts/fp8_call.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  gemm::add_fp8(c, go, gemm::Groups::masked);
}

}  // namespace

const Op gemm_fp8_masked_op{
    .name = "gemm_fp8_masked",
    .family = "gemm",
    .purpose = "a product of block-scaled e4m3 matrices per group, of the rows that count",
    .signature = R"(
      a             e4m3 [G, Mmax, K]
      a_sf          f32 [G, Mmax, ceil(K/128)] any
      b             e4m3 [G, N, K]
      b_sf          f32 [G, ceil(N/128), ceil(K/128)]
      masked_m      i32 [G]                  values 0 .. Mmax
      -> inout out  bf16 [G, Mmax, N]        # rows of padding stay as they are
      param         expected_m int = 0       # says nothing that changes a result
      limit         Mmax <= 2130706431
      limit         N <= 2130706431
      limit         K <= 2130706431
    )",
    .launches = launches,
    .examples = R"(
      G=3 Mmax=200 N=320 K=256; G=2 Mmax=70 N=100 K=80; G=2 Mmax=9 N=24 K=0)",
    .bench = R"(
      G=32 Mmax=4096 N=6144 K=7168 mean=192; G=6 Mmax=4096 N=6144 K=7168 mean=1024
      G=32 Mmax=4096 N=7168 K=3072 mean=192; G=6 Mmax=4096 N=7168 K=3072 mean=1024
      G=32 Mmax=4096 N=4096 K=4096 mean=192; G=6 Mmax=4096 N=4096 K=2048 mean=1024
      G=32 Mmax=4096 N=6144 K=7168 mean=20; G=6 Mmax=4096 N=7168 K=3072 mean=20)",
    .case_words = {{"mean", [](const Case& c) { return c["Mmax"] / 2; }}},
    // From half to one and a half times the mean.
    .values = {{"masked_m", [](const Case& c, int64_t g) {
                  return std::min(c["Mmax"], c["mean"] / 2 + g * 7919 % (c["mean"] + 1));
                }}}};

}  // namespace tessera::kernels
