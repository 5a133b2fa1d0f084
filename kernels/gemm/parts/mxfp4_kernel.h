#pragma once
// The kernel of the products with MXFP4 weights.

#include "dsl/builder.h"
#include "kernels/gemm/parts/mxfp4_codes.h"
#include "kernels/gemm/parts/tile.h"

namespace tessera::kernels::gemm {

/// Which rows of `a` meet which matrix of `b`.
enum class MxGroups : int32_t {
  one,  // all rows the only one
  by_rows,  // every `alignment` rows one that m_indices names; rows of -1 have none and stay as they are in out
  by_ends,  // rows from align(psum[e - 1]) to psum[e] matrix e; rows between groups stay
  masked,   // matrix g of `a` matrix g; rows from masked_m[g] on stay
};

/// Everything that generated code depends on.
struct Mxfp4Spec {
  MxGroups groups;
  Mxfp4Operand operand;
  int32_t a_vector, out_vector;    // elements that rows begin at multiples of
  int32_t n_multiple, k_multiple;  // what the extents are multiples of
  int32_t has_depth, is_f32;       // 0 or 1
  int32_t by_block;                // 1: b_sf has a scale for each 128 of k, else one for each row
  int32_t scaled;                  // of k, by one scale of a: 128 or 32; bf16 has none
  int32_t is_packed;               // 1: scales of a are exponents, four in a word
  int32_t has_bias;
  Tile tile;  // rows of b by rows of a: is_swapped
};

inline constexpr const char* kSeveralGroupsAligned =
    "argument 'm_indices' has several groups in 'alignment' rows";

/// out [slabs, m, n] = a [slabs, m, depth] * (b [groups, n, depth] decoded) transposed, with the scales of both.
ir::Kernel build_mxfp4(const Mxfp4Spec& spec);

}  // namespace tessera::kernels::gemm
