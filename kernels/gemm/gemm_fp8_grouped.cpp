// gemm_fp8_grouped: gemm_fp8_block with a matrix b per group of experts' rows; m_indices names the group of
// every 128 rows. Rows without a group (-1), which may stand anywhere among them, keep what out holds.
//
// Dtypes   as gemm_fp8_block; out bf16
// Method   as gemm_fp8_block; a warp reads the 128 ids around a tile first, four per lane. A tile where each row has a
//          group is written as a whole, another by elements.
// Maths    as gemm_fp8_block
// Tuned    as gemm_fp8_block; H100, 8 x 4096 rows: 6144 x 7168 2689 us, 7168 x 3072 1281, 4096 x 4096 1027,
//          4096 x 2048 545

#include "kernels/gemm/parts/fp8_call.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  gemm::add_fp8(c, go, gemm::Groups::by_rows);
}

}  // namespace

const Op gemm_fp8_grouped_op{
    .name = "gemm_fp8_grouped",
    .family = "gemm",
    .purpose = "block-scaled e4m3 rows, each 128 times the matrix of their group",
    .signature = R"(
      a             e4m3 [M, K] rows
      a_sf          SF(1,128) a_sf_layout
      b             e4m3 [G, N, K]
      b_sf          f32 [G, ceil(N/128), ceil(K/128)]
      m_indices     i32 [M]                  values -1 .. G - 1     # one group in 128 rows, or -1 anywhere: no group
      -> inout out  bf16 [M, N] rows         # rows without a group stay as they are
      param         a_sf_layout {row_major, col_major_tma} = row_major
      limit         M <= 2130706431
      limit         N <= 2130706431
      limit         K <= 2130706431
    )",
    .launches = launches,
    .check_values = gemm::require_groups_of_rows,
    .examples = R"(
      M=384 N=320 K=256 G=3; M=200 N=100 K=80 G=2 a_sf_layout=col_major_tma; M=130 N=24 K=0 G=2)",
    .bench = R"(
      M=32768 N=6144 K=7168 G=4; M=32768 N=7168 K=3072 G=4; M=32768 N=4096 K=4096 G=4
      M=32768 N=4096 K=2048 G=4; M=32768 N=6144 K=7168 G=8; M=32768 N=7168 K=3072 G=8
      M=32768 N=4096 K=4096 G=8; M=32768 N=4096 K=2048 G=8)",
    .values = {{"m_indices", [](const Case& c, int64_t row) {
                  return row / 128 * c["G"] / ((c["M"] + 127) / 128);
                }}}};

}  // namespace tessera::kernels
