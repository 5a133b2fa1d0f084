// gemm_mxfp4_grouped: a gemm_mxfp4 of each row with the weights of its group. Rows without a group keep what out holds.
//
// Dtypes   as gemm_mxfp4; out bf16
// Method   as gemm_mxfp4; psum: tiles are numbered group after group; m_indices: every `alignment` rows have tiles of
//          their own
// Maths    as gemm_mxfp4

#include <algorithm>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/gemm/parts/mxfp4_call.h"
#include "kernels/registry/all_ops.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  gemm::add_mxfp4(c, go, c.has("psum") ? gemm::MxGroups::by_ends : gemm::MxGroups::by_rows);
}

void check(const Call& c) {
  c.need(c.has("psum") != c.has("m_indices"), "psum",
         "rows have their groups by 'psum' or by 'm_indices'", "one of the two",
         c.has("psum") ? "both" : "none");
  gemm::check_mxfp4(c);
}

void check_values(const Call& c) {
  if (values_are_checked(c.given("psum"))) {
    int64_t last = 0;
    for (int64_t g = 0; g < c["G"]; ++g) {
      const int64_t end = integer_at(c.given("psum"), g);
      c.need(last <= end && end <= c["M"], "psum", out_of_range("psum"),
             std::to_string(last) + " .. " + std::to_string(c["M"]),
             std::to_string(end) + " at " + to_string(Dims{g}));
      last = end;
    }
  }
  if (!values_are_checked(c.given("m_indices"))) return;
  int64_t named_by = -1;  // the first row that has a group, of those around `row`
  for (int64_t row = 0; row < c["M"]; ++row) {
    if (row % c["alignment"] == 0) named_by = -1;
    const int64_t got = integer_at(c.given("m_indices"), row);
    if (got < 0) continue;
    if (named_by < 0) named_by = row;
    const int64_t want = integer_at(c.given("m_indices"), named_by);
    c.need(got == want, "m_indices", gemm::kSeveralGroupsAligned,
           std::to_string(want) + " as at " + to_string(Dims{named_by}) + ", or -1",
           std::to_string(got) + " at " + to_string(Dims{row}));
  }
}

}  // namespace

const Op gemm_mxfp4_grouped_op{
    .name = "gemm_mxfp4_grouped",
    .family = "gemm",
    .purpose = "scaled e4m3 rows, each times the MXFP4 weights of its group",
    .signature = R"(
      a             e4m3/bf16 [M, K] rows
      a_sf?         SF(1, num_per_channels) a_sf_layout    iff a is e4m3
      b             u8 [G, Nt, Kt, S] align 16    # by mxfp4_prepack, as b_shift and b_sf
      b_shift       u8 [G, Nt, Kb, 64, 4] align 16
      b_sf          f32 [G, N, Fb?]                # Fb: ceil(K / 128), of weights folded by blocks
      bias?         f32 [G, N]
      psum?         i32 [G]                       # ascending; group e: rows align(psum[e - 1]) .. psum[e] - 1
      m_indices?    i32 [M]                       values -1 .. G - 1  # one group in `alignment` rows, or -1 anywhere
      -> inout out  bf16 [M, N] rows              # rows without a group stay as they are
      param         num_per_channels {32, 128} = 128
      param         a_sf_layout = row_major
      param         alignment int >= 1 = 128
      need          S = 4096                      if a is e4m3 on b
      need          S = 2048                      if a is bf16 on b
      need          Nt = ceil(N / 64)             on b
      need          Kt = ceil(K / 128)            if a is e4m3 on b
      need          Kt = ceil(K / 64)             if a is bf16 on b
      need          Kb = ceil(K / 128)            on b_shift
      limit         alignment <= 16777216
      limit         M <= 2113929216
      limit         N <= 2130706431
      limit         K <= 2130706431
      limit         (M + G) * Nt <= 2130706431
    )",
    .launches = launches,
    .check = check,
    .check_values = check_values,
    .examples = R"(
      M=40 N=100 K=160 Fb=2 G=3 psum=given alignment=8; M=24 N=40 K=96 G=2 psum=given alignment=1 num_per_channels=32
      M=40 N=100 K=160 Fb=2 G=3 m_indices=given alignment=16; M=24 N=8 K=0 G=2 psum=given alignment=8 bias=given)",
    .bench = R"(
      M=32768 N=6144 K=7168 Fb=56 G=4 psum=given; M=32768 N=4096 K=4096 Fb=32 G=8 psum=given
      M=32768 N=4096 K=4096 G=8 m_indices=given)",
    .case_words = {{"S", gemm::tile_bytes_of},
                   {"Nt", gemm::row_tiles_of},
                   {"Kt", gemm::depth_tiles_of},
                   {"Kb", gemm::depth_blocks_of}},
    // Groups of equal size, whole times the alignment but for the last.
    .values = {{"psum",
                [](const Case& c, int64_t g) {
                  const int64_t runs = c["M"] / c["alignment"];
                  return g + 1 == c["G"] ? c["M"] : runs * (g + 1) / c["G"] * c["alignment"];
                }},
               {"m_indices", [](const Case& c, int64_t row) {
                  const int64_t runs = (c["M"] + c["alignment"] - 1) / c["alignment"];
                  return row / c["alignment"] * c["G"] / runs;
                }}}};

}  // namespace tessera::kernels
