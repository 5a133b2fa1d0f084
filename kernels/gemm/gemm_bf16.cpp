// gemm_bf16: out = a * b transposed, by the tensor cores with f32 sums, and a bias for each column.
//
// Dtypes   a and b bf16, each row- or column-major, bias f32, out bf16|f32
// Method   On sm_90a, for aligned operands: one warp loads tiles by tensor copies into a ring, two groups of
//          four warps (one for up to 64 rows) multiply them by wgmma. The tile is the one whose waves end
//          soonest; for up to 48 rows of a, its rows are rows of b, and a fills its columns. Each block
//          computes tile after tile, and the next one is loaded while the last is written, up to 1024 of k by
//          the copy engine. Otherwise a pipelined loop copies ahead, in pieces as wide as the alignment allows
//          (single elements are not copied ahead), and multiplies by mma.sync.
// Maths    sums in ascending k from +0, 16 per instruction; + bias in f32; one rounding to out. What a tile
//          has beyond the matrices is zero, which changes no sum, so no bit depends on the tile.
// Tuned    H100, us, ours / cuBLAS, shape by shape in turn: 4096^3 177 / 171, 8192^3 1437 / 1500; M = 4096 with N x K
//          of 2112 x 7168 164 / 158, 576 x 7168 50 / 47, 24576 x 1536 441 / 431, 32768 x 512 220 / 219,
//          7168 x 16384 1236 / 1294, 4096 x 7168 313 / 316, 7168 x 2048 163 / 159; M of 64 and 128 with
//          4096 x 7168 31 / 32, 33 / 31. Geometric mean of M = 4096: 0.986 x cuBLAS. Both depend on
//          how warm the GPU is: 8192^3 took 1421 to 1575, cuBLAS 1364 to 1500.
//          Few rows, H200, ours / cuBLAS at M = 1, 16, 32: 2112 x 7168 17.0 / 15.3, 17.0 / 14.7, 17.6 / 15.0;
//          576 x 7168 16.0 / 7.5, 16.0 / 7.8, 16.2 / 8.5; 24576 x 1536 26.0 / 27.2, 26.0 / 26.5, 26.2 / 26.6;
//          32768 x 512 14.3 / 14.5, 14.4 / 14.4, 14.8 / 14.4; 7168 x 16384 66.3 / 68.3, 65.8 / 69.4, 66.1 / 68.1;
//          4096 x 7168 22.0 / 23.2, 21.9 / 23.5, 22.2 / 23.3; 7168 x 2048 12.8 / 12.5, 12.8 / 12.5, 12.7 / 12.6.
//          Bound there, calculated: a tile of 64 x 7168 takes 13 us at the 69 GB/s that a multiprocessor copies from
//          L2, so N = 576 and 2112 want narrower tiles of b. 33 to 48 rows are not measured. Lost: rows of a on the tile's rows (M = 1, 2112 x 7168 27.8), the same with 8
//          rows copied by pieces 51.0.
//          Bound: the tensor cores are busy 94 % of the time at 1.5 GHz, so power counts. Out by the copy
//          engine: 1 to 6 % faster up to K = 1024, 3 % faster to 5 % slower from 1536 on. Slower (7168 x 16384):
//          256 x 128 tiles 1333, 3 stages 1284, columns in groups of 16 1282; 4096^3 in clusters of 2 that copy
//          b once by multicast 297 (176 without), for 16 KiB at a time. Columns in groups of 4: 1248, of 8: 1257.

#include "kernels/gemm/parts/bf16_kernel.h"
#include "kernels/jit/target.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using gemm::Bf16Spec;
using gemm::Operand;
using gemm::Tile;

constexpr Tile kPipelined = {128, 128, 32, 4, 0};  // 96 KiB of shared memory, two blocks per SM
constexpr int64_t kWidest = 8;                     // elements of a 16-byte vector

Tile pick_tile(const Call& c, const Bf16Spec& s) {
  const bool is_aligned = s.a.vector == kWidest && s.b.vector == kWidest;
  if (s.has_depth == 0 || !is_aligned || !jit::has_wgmma(c.device())) return kPipelined;
  for (const Tile& tile : gemm::kBf16Swapped) {
    if (c["M"] <= tile.columns && s.a.by_column == 0) return tile;
  }
  return gemm::soonest(1, c["M"], c["N"], gemm::kBf16Tiles, gemm::kBf16Fixed);
}

void launches(const Call& c, Launches& go) {
  const TensorView &a = c.given("a"), &b = c.given("b");
  Bf16Spec s{};
  s.has_depth = c["K"] > 0 ? 1 : 0;
  s.has_bias = c.has("bias") ? 1 : 0;
  s.is_f32 = c.dtype("out_dtype") == DType::f32 ? 1 : 0;
  s.a = gemm::operand_of(a);
  s.b = gemm::operand_of(b);
  s.out_vector = gemm::operand_of(c.given("out")).vector;
  s.tile = pick_tile(c, s);
  s.by_engine = gemm::is_written_by_engine(s.tile, c.given("out"), s.out_vector, c["K"]) ? 1 : 0;
  // Tensor copies know where a matrix ends; other copies take vectors that lie wholly inside.
  s.m_multiple =
      s.tile.by_roles == 0 && s.a.by_column != 0 ? gemm::multiple_of(c["M"], kWidest) : 1;
  s.n_multiple = gemm::multiple_of(c["N"], kWidest);
  s.k_multiple = s.tile.by_roles == 0 ? gemm::multiple_of(c["K"], kWidest) : 1;
  if (s.has_depth == 0) {  // nothing is read
    s.a = s.b = {};
    s.m_multiple = s.k_multiple = 1;
  }
  go.add(gemm::build_bf16, s,
         {.tensors = {{"a", gemm::contiguous_last(a, s.a)}, {"b", gemm::contiguous_last(b, s.b)}}});
}

}  // namespace

const Op gemm_bf16_op{
    .name = "gemm_bf16",
    .family = "gemm",
    .purpose = "the product of two bf16 matrices by the tensor cores, with a bias if given",
    .signature = R"(
      a       bf16 [M, K] any1
      b       bf16 [N, K] any1
      bias?   f32 [N]
      -> out  out_dtype [M, N] rows
      param   out_dtype {bf16, f32} = bf16
      limit   M <= 2130706431
      limit   N <= 2130706431
      limit   K <= 2130706431
    )",
    .launches = launches,
    .examples = R"(
      M=200 N=320 K=192; M=130 N=100 K=72 out_dtype=f32 bias=given; M=7 N=33 K=65
      M=72 N=136 K=88 a.strides=1,72 b.strides=1,136; M=9 N=24 K=0 bias=given)",
    .bench = R"(
      M=4096 N=4096 K=4096; M=8192 N=8192 K=8192
      M=4096 N=2112 K=7168; M=4096 N=576 K=7168; M=4096 N=24576 K=1536; M=4096 N=32768 K=512
      M=4096 N=7168 K=16384; M=4096 N=4096 K=7168; M=4096 N=7168 K=2048
      M=4096 N=256 K=7168 out_dtype=f32; M=4096 N=129280 K=7168 out_dtype=f32
      M=1 N=4096 K=7168; M=16 N=4096 K=7168; M=64 N=4096 K=7168; M=128 N=4096 K=7168)"};

}  // namespace tessera::kernels
