#pragma once
// Stochastic rounding: an f32 becomes one of its two neighbours in a smaller format, the upper one with
// the probability of its place between them. The random bits are a hash of four neighbouring values,
// their place in the tensor and the seed, so a result depends on nothing else: not on the tile, the
// thread or the GPU, and a call repeats its bits.

#include "dsl/builder.h"

namespace tessera::kernels::serving {

/// The bits of four elements i .. i + 3, i a multiple of 4.
class RandomBits {
 public:
  /// `values` are the f32 of elements 4 quad .. 4 quad + 3; `quad` is an i64.
  RandomBits(dsl::Builder& k, const dsl::Ref& values, const dsl::Value& quad,
             const dsl::Value& seed);

  /// Rounds the f32 of element j, 0 .. 3, to a bf16 that the result holds. Infinity and NaN stay; a carry
  /// beyond the largest number gives that.
  dsl::Value to_bf16(const dsl::Value& value, int64_t j) const;
  /// Rounds the four to e4m3, as the bytes of a u32, the first lowest; magnitudes are cut to 448, NaN stays.
  dsl::Value to_e4m3(const dsl::Ref& values) const;

 private:
  dsl::Builder& k_;
  dsl::Value low_, high_;  // u32
};

}  // namespace tessera::kernels::serving
