#pragma once
// The two kernels of per_block_cast_lossless and the rules that they share.

#include "kernels/quant/parts/scale_access.h"
#include "kernels/signature/call.h"

namespace tessera::kernels {

/// Everything that generated code depends on.
struct LosslessSpec {
  SfLayout x_sf_layout, sf_layout;
  int16_t align;  // bytes of x, at most 16
  int32_t hidden;
  int32_t in_rows, in_cols;    // of a block of x
  int32_t out_rows, out_cols;  // of a block of out
};

/// The allowed exponent differences within a block of `out`: codes from 1/2 to 6 times 2^-5 .. 2^6
/// are normal e4m3 numbers.
inline constexpr int32_t kLeastShift = -5, kMostShift = 6;
inline constexpr const char* kTooFarApart =
    "argument 'x_sf' has scales too far apart in one block of 'out'";

/// Throws unless every scale of a CPU tensor is a power of two close enough to the largest of its
/// block of `out`.
void require_lossless_scales(const Call& c);

/// True if build_lossless_tile supports the blocks: powers of two that fit in one thread block, and
/// x in 8-byte vectors.
bool fits_tile(const LosslessSpec& s);
/// One thread block per tile of several blocks of `out`, all in registers.
ir::Kernel build_lossless_tile(const LosslessSpec& s);
/// One warp per block of `out` of any size, one code per lane.
ir::Kernel build_lossless_block(const LosslessSpec& s);

/// Loads block (row, col) of the scales and returns its biased exponent as i32, or 0 if `is_inside`
/// is false. Reports an f32 scale that is no positive finite power of two.
dsl::Value input_exponent(dsl::Builder& k, const LosslessSpec& s, const ScaleReader& x_sf,
                          const dsl::Value& row, const dsl::Value& col,
                          const dsl::Value& is_inside);
/// Returns the scale of a block of `out` with the largest input exponent `most`. It leaves the
/// largest codes 2^6 of range.
ScaleFactor output_scale(dsl::Builder& k, const dsl::Value& most);

}  // namespace tessera::kernels
