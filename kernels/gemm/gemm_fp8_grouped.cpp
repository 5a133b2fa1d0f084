// gemm_fp8_grouped: gemm_fp8_block with a matrix b per group of experts' rows. m_indices names the group of each row, or
// psum the end of each group's rows. Rows without a group keep what out holds.
//
// Dtypes   as gemm_fp8_block; out bf16
// Method   as gemm_fp8_block. psum: tiles begin at the first row of their group, whatever the alignment, and blocks take
//          the tiles of all groups in turn (group_tiles.h). m_indices: a warp reads the 128 ids around a tile first, four
//          per lane; where the alignment does not promise one group in 128 rows, a tile is computed once for each group
//          that its ids name. A tile of whose rows all count is written as a whole, another by elements.
// Maths    as gemm_fp8_block
// Tuned    as gemm_fp8_block; H100, 8 x 4096 rows: 6144 x 7168 2689 us, 7168 x 3072 1281, 4096 x 4096 1027,
//          4096 x 2048 545

#include <algorithm>

#include "kernels/gemm/parts/fp8_call.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  gemm::add_fp8(c, go, gemm::groups_of_rows(c));
}

/// The group of a row of a case: as many multiples of the alignment for each.
int64_t id_of_row(const Case& c, int64_t row) {
  const int64_t alignment = c["alignment"], units = (c["M"] + alignment - 1) / alignment;
  return row / alignment * c["G"] / units;
}

/// The end of a group of a case: `rows` rows each while there is room.
int64_t end_of_group(const Case& c, int64_t group) {
  const int64_t alignment = c["alignment"];
  const int64_t apart = (c["rows"] + alignment - 1) / alignment * alignment;
  return std::min(c["M"], group * apart + c["rows"]);
}

/// Groups without rows need no matrix.
int64_t bytes(const Case& c) {
  int64_t rows = c["M"], groups = c["G"], of_groups = 4 * rows;
  if (c.has("psum")) {
    of_groups = 4 * groups, rows = groups = 0;
    for (int64_t g = 0, before = 0; g < c["G"]; ++g) {
      const int64_t alignment = c["alignment"], end = end_of_group(c, g);
      const int64_t start = (before + alignment - 1) / alignment * alignment;
      if (end > start) rows += end - start, ++groups;
      before = end;
    }
  }
  const int64_t parts = (c["K"] + 127) / 128, column_parts = (c["N"] + 127) / 128;
  return rows * (c["K"] + 4 * parts + 2 * c["N"]) +
         groups * (c["N"] * c["K"] + 4 * column_parts * parts) + of_groups;
}

}  // namespace

const Op gemm_fp8_grouped_op{
    .name = "gemm_fp8_grouped",
    .family = "gemm",
    .purpose = "block-scaled e4m3 rows, each times the matrix of its group",
    .signature = R"(
      a             e4m3 [M, K] rows
      a_sf          SF(1,128) a_sf_layout
      b             e4m3 [G, N, K]
      b_sf          f32 [G, ceil(N/128), ceil(K/128)]
      m_indices?    i32 [M]  values -1 .. G - 1  iff not psum  # the group of each row, -1: none
      psum?         i32 [G]                  # or the end of each group's rows, which begin at a multiple of alignment
      -> inout out  bf16 [M, N] rows         # rows without a group stay as they are
      param         a_sf_layout {row_major, col_major_tma} = row_major
      param         alignment int >= 1 = 128 # a multiple of 128 promises one group in 128 rows of m_indices
      need          alignment <= 2147483647
      limit         M <= 2130706431
      limit         N <= 2130706431
      limit         K <= 2130706431
    )",
    .launches = launches,
    .check_values = gemm::require_groups_of_rows,
    .examples = R"(
      M=384 N=320 K=256 G=3; M=200 N=100 K=80 G=2 a_sf_layout=col_major_tma; M=130 N=24 K=0 G=2
      M=384 N=320 K=256 G=3 alignment=8; M=200 N=100 K=80 G=2 alignment=24; M=130 N=24 K=0 G=2 alignment=1
      M=384 N=320 K=256 G=3 psum=given; M=200 N=100 K=80 G=40 psum=given alignment=8
      M=130 N=24 K=0 G=2 psum=given alignment=16)",
    .bench = R"(
      M=32768 N=6144 K=7168 G=4; M=32768 N=7168 K=3072 G=4; M=32768 N=4096 K=4096 G=4
      M=32768 N=4096 K=2048 G=4; M=32768 N=6144 K=7168 G=8; M=32768 N=7168 K=3072 G=8
      M=32768 N=4096 K=4096 G=8; M=32768 N=4096 K=2048 G=8
      M=32768 N=6144 K=7168 G=8 psum=given; M=32768 N=4096 K=4096 G=8 psum=given
      M=2176 N=4096 K=4096 G=256 psum=given alignment=8 rows=1
      M=48 N=4096 K=4096 G=256 psum=given alignment=8 rows=1)",
    .case_words = {{"rows", [](const Case& c) { return c["M"] / std::max<int64_t>(c["G"], 1); }}},
    .values = {{"m_indices", id_of_row}, {"psum", end_of_group}},
    .bytes = bytes};

}  // namespace tessera::kernels
