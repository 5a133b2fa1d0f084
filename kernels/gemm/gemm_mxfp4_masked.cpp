// gemm_mxfp4_masked: a gemm_mxfp4 per group, of its first masked_m[g] rows. Rows from there on are padding and keep
// what out holds.
//
// Dtypes   a e4m3, weights e2m1 codes with shifts (mxfp4_prepack); out bf16
// Method   as gemm_mxfp4; the tiles of the rows that count are numbered group after group, and blocks take them in
//          turn
// Maths    as gemm_mxfp4

#include <algorithm>

#include "kernels/gemm/parts/mxfp4_call.h"
#include "kernels/registry/all_ops.h"

namespace tessera::kernels {
namespace {

void launches(const Call& c, Launches& go) {
  gemm::add_mxfp4(c, go, gemm::MxGroups::masked);
}

/// From half to one and a half times the mean.
int64_t rows_of(const Case& c, int64_t g) {
  return std::min(c["Mmax"], c["mean"] / 2 + g * 7919 % (c["mean"] + 1));
}

/// All weights, and the rows that count.
int64_t bytes_of(const Case& c) {
  int64_t rows = 0;
  for (int64_t g = 0; g < c["G"]; ++g) rows += rows_of(c, g);
  const bool is_bf16 = c.dtype_word("a") == "bf16";
  const int64_t blocks = c.find("Fb") ? c["Fb"] : 1;
  const int64_t weights = c["Nt"] * (c["Kt"] * c["S"] + c["Kb"] * 256) + 4 * c["N"] * blocks;
  const int64_t of_row = (is_bf16 ? 2 * c["K"] : c["K"] + 4 * c["C"]) + 2 * c["N"];
  return c["G"] * weights + rows * of_row;
}

}  // namespace

const Op gemm_mxfp4_masked_op{
    .name = "gemm_mxfp4_masked",
    .family = "gemm",
    .purpose = "a product of scaled e4m3 rows and MXFP4 weights per group, of the rows that count",
    .signature = R"(
      a             e4m3/bf16 [G, Mmax, K]
      a_sf?         f32/i32 [G, Mmax, C] any      iff a is e4m3
      b             u8 [G, Nt, Kt, S] align 16    # by mxfp4_prepack, as b_shift and b_sf
      b_shift       u8 [G, Nt, Kb, 64, 4] align 16
      b_sf          f32 [G, N, Fb?]                # Fb: ceil(K / 128), of weights folded by blocks
      bias?         f32 [G, N]
      masked_m      i32 [G]                       values 0 .. Mmax
      -> inout out  bf16 [G, Mmax, N]             # rows of padding stay as they are
      param         num_per_channels {32, 128} = 128
      param         a_sf_layout = row_major
      param         expected_m int = 0            # says nothing that changes a result
      need          S = 4096                      if a is e4m3 on b
      need          S = 2048                      if a is bf16 on b
      need          Nt = ceil(N / 64)             on b
      need          Kt = ceil(K / 128)            if a is e4m3 on b
      need          Kt = ceil(K / 64)             if a is bf16 on b
      need          Kb = ceil(K / 128)            on b_shift
      need          a_sf is i32 iff a_sf_layout = packed_ue8m0    on a_sf_layout
      need          C = ceil(K / num_per_channels)                if a_sf is f32 on a_sf
      need          C = ceil(K / (4 * num_per_channels))          if a_sf is i32 on a_sf
      limit         Mmax <= 2130706431
      limit         N <= 2130706431
      limit         K <= 2130706431
      limit         G * ceil(Mmax / 8) * Nt <= 2130706431
    )",
    .launches = launches,
    .check = gemm::check_mxfp4,
    .examples = R"(
      G=3 Mmax=20 N=320 K=256 Fb=2; G=2 Mmax=70 N=100 K=160 bias=given num_per_channels=32
      G=2 Mmax=9 N=24 K=144 Fb=2 a_sf=i32 a_sf_layout=packed_ue8m0 num_per_channels=32; G=2 Mmax=9 N=24 K=0
      G=132 Mmax=12 N=8 K=128 Fb=1; G=2 Mmax=70 N=8 K=64 a=bf16; G=2 Mmax=70 N=8 K=128 Fb=1)",
    .bench = R"(
      G=8 Mmax=4096 N=4096 K=7168 Fb=56 mean=16 expected_m=16; G=8 Mmax=4096 N=7168 K=2048 Fb=16 mean=16 expected_m=16
      G=32 Mmax=4096 N=6144 K=7168 Fb=56 mean=20 expected_m=32; G=8 Mmax=4096 N=4096 K=7168 mean=16 expected_m=16
      G=32 Mmax=4096 N=6144 K=7168 Fb=56 mean=192 expected_m=192
      G=6 Mmax=4096 N=6144 K=7168 Fb=56 mean=1024 expected_m=1024
      G=8 Mmax=4096 N=4096 K=7168 Fb=56 mean=16 expected_m=16 num_per_channels=32 a_sf=i32 a_sf_layout=packed_ue8m0)",
    .case_words = {{"mean", [](const Case& c) { return c["Mmax"] / 2; }},
                   {"S", gemm::tile_bytes_of},
                   {"Nt", gemm::row_tiles_of},
                   {"Kt", gemm::depth_tiles_of},
                   {"Kb", gemm::depth_blocks_of},
                   {"C", gemm::scale_columns_of}},
    .values = {{"masked_m", rows_of}},
    .bytes = bytes_of};

}  // namespace tessera::kernels
