// gemm_fp8_k_grouped: out[g] += a * b transposed over the columns k_offsets[g] .. k_offsets[g + 1] - 1, of
// e4m3 matrices with a scale per row and 128 columns: weight gradients of experts.
//
// Dtypes   a and b e4m3, each row- or column-major; scales and out f32
// Method   On sm_90a, for aligned row-major operands: one warp loads tiles by tensor copies into a ring, two
//          groups of four warps multiply them by wgmma. Otherwise a pipelined loop copies ahead; of
//          column-major operands the bytes are gathered for mma.sync, since no instruction takes them.
// Maths    each 128 of k: a part sum from +0 by the instruction of the target (wgmma only for row-major
//          operands), then one fma: sum = fma(part, a_sf * b_sf, sum). One f32 addition to out.
// Tuned    One H200, us (DeepGEMM on another day): 4096 x 7168 by 4, 8 and 16 groups of 32768 columns in all 2595
//          (1970), 2699 (2063), 2988 (2312); 7168 x 2048 1202 (999), 1203 (1024), 1489 (1114). Slower: each element
//          of out read and written in turn, so that loads wait for stores, 2857, 3318, 4805; 1340, 1639, 2400;
//          four warps that load 3005 for 2696 (H100). Open: no product runs while the one before is added, since
//          two part sums and the scales of two steps' columns exceed the registers.

#include <algorithm>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/gemm/parts/k_grouped_kernel.h"
#include "kernels/jit/target.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using gemm::KGroupedSpec;
using gemm::Tile;

constexpr Tile kPipelined = {64, 64, 128, 3, 0};  // 48 KiB of shared memory
constexpr Tile kByRoles = {128, 128, 128, 5, 1};  // 160 KiB
constexpr int64_t kWidest = 16;                   // elements of a vector
constexpr int64_t kPart = 128;                    // columns that share a scale

void launches(const Call& c, Launches& go) {
  if (c["K"] == 0) return;  // nothing is added
  const TensorView &a = c.given("a"), &b = c.given("b");
  KGroupedSpec s{};
  s.a = gemm::operand_of(a);
  s.b = gemm::operand_of(b);
  const bool is_aligned = s.a.vector == kWidest && s.b.vector == kWidest;
  const bool is_by_row = s.a.by_column == 0 && s.b.by_column == 0;
  const bool by_roles = is_aligned && is_by_row && jit::has_wgmma(c.device());
  s.tile = by_roles ? kByRoles : kPipelined;
  // Tensor copies know where a matrix ends; other copies take vectors that lie wholly inside.
  s.m_multiple = s.a.by_column != 0 ? gemm::multiple_of(c["M"], kWidest) : 1;
  s.n_multiple = gemm::multiple_of(c["N"], s.b.by_column != 0 ? kWidest : 4);
  s.k_multiple = by_roles ? 1 : gemm::multiple_of(c["K"], kWidest);
  go.add(gemm::build_k_grouped, s,
         {.tensors = {{"a", gemm::contiguous_last(a, s.a)}, {"b", gemm::contiguous_last(b, s.b)}}});
}

void require_offsets(const Call& c) {
  const TensorView& offsets = c.given("k_offsets");
  if (!values_are_checked(offsets)) return;
  for (int64_t i = 0; i <= c["G"]; ++i) {
    const int64_t offset = integer_at(offsets, i);
    const int64_t before = i == 0 ? 0 : integer_at(offsets, i - 1);
    c.need(offset % kPart == 0 && offset >= before, "k_offsets",
           "argument 'k_offsets' has a value that starts no group",
           "multiples of 128, each at least the one before",
           std::to_string(offset) + " at " + to_string(Dims{i}));
  }
}

}  // namespace

const Op gemm_fp8_k_grouped_op{
    .name = "gemm_fp8_k_grouped",
    .family = "gemm",
    .purpose = "products of groups of columns of two scaled e4m3 matrices, added to out",
    .signature = R"(
      a           e4m3 [M, K] any1
      a_sf        f32 [ceil(K/128), M]
      b           e4m3 [N, K] any1
      b_sf        f32 [ceil(K/128), N]
      k_offsets   i32 [G+1]                  values 0 .. K     # multiples of 128, ascending
      -> acc out  f32 [G, M, N]
      need        G >= 0 on k_offsets "argument 'k_offsets' is empty"
      limit       M <= 2130706431
      limit       N <= 2130706431
      limit       K <= 2130706431
      limit       G * ceil(M / 64) <= 2130706431 on k_offsets
    )",
    .launches = launches,
    .check_values = require_offsets,
    .examples = R"(
      M=200 N=136 K=512 G=3; M=40 N=33 K=300 G=2; M=72 N=48 K=256 G=2 a.strides=1,72 b.strides=1,48)",
    .bench = R"(
      M=4096 N=7168 K=32768 G=4; M=7168 N=2048 K=32768 G=4; M=4096 N=7168 K=32768 G=8
      M=7168 N=2048 K=32768 G=8; M=4096 N=7168 K=32768 G=16; M=7168 N=2048 K=32768 G=16)",
    .values = {{"k_offsets", [](const Case& c, int64_t i) {
                  return i * (c["K"] / kPart) / std::max<int64_t>(c["G"], 1) * kPart;
                }}}};

}  // namespace tessera::kernels
