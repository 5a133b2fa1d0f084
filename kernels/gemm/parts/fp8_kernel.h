#pragma once
// The kernel of the products of block-scaled 8-bit floats.

#include <span>

#include "dsl/builder.h"
#include "kernels/gemm/parts/tile.h"

namespace tessera::kernels::gemm {

/// Which rows of `a` meet which matrix of `b`.
enum class Groups : int32_t {
  one,      // all rows the only one
  by_rows,  // every 128 rows one that m_indices names; rows of -1 have none and stay as they are in out
  masked,   // matrix g of `a` matrix g; rows from masked_m[g] on are padding and stay as they are
  by_ids,   // every row the one that m_indices names; a tile is computed once for each group in it
  by_ends,  // the rows of group g, which psum ends; padding between groups stays as it is
};

/// Rows that have one group, but for those without.
inline constexpr int32_t kRowsOfGroup = 128;
inline constexpr const char* kSeveralGroups = "argument 'm_indices' has several groups in 128 rows";

/// Everything that generated code depends on.
struct Fp8Spec {
  Groups groups;
  int32_t a_vector, b_vector, out_vector;  // elements that rows begin at multiples of
  int32_t n_multiple, k_multiple;          // what the extents are multiples of
  int32_t has_depth, is_f32;               // 0 or 1
  int32_t by_engine;                       // 1: the copy engine writes out
  Tile tile;                               // of at most 128 columns, steps of 128
};

/// By roles, for sm_90a: 196 to 226 KiB of shared memory.
inline constexpr Tile kFp8Tiles[] = {
    {192, 128, 128, 4, 1}, {128, 128, 128, 5, 1}, {128, 64, 128, 8, 1}, {128, 32, 128, 9, 1},
    {64, 128, 128, 8, 1},  {64, 64, 128, 12, 1},  {64, 32, 128, 16, 1}};
/// The tiles for `groups`. Only one product has tiles of 192 rows: where every 128 rows have a group of their own, two
/// groups would share a tile.
inline std::span<const Tile> fp8_tiles(Groups groups) {
  return std::span(kFp8Tiles).subspan(groups == Groups::one ? 0 : 1);
}
/// For gemm::soonest. Measured: 128 x 128 and 64 in 27 and 18 us (H100).
inline constexpr int64_t kFp8Fixed = 60;

/// out [slabs, m, n] = a [slabs, m, depth] * b [groups, n, depth] transposed, where blocks of 1 x 128 of a
/// and of 128 x 128 of b have scales.
ir::Kernel build_fp8(const Fp8Spec& spec);

}  // namespace tessera::kernels::gemm
