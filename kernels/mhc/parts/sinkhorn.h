#pragma once
// The Sinkhorn projection of a small matrix, one element per lane. Plain and fused ops share this
// order of operations.

#include <bit>
#include <cstdint>
#include <functional>
#include <limits>

#include "dsl/builder.h"

namespace tessera::kernels::mhc {

inline constexpr int64_t kMaxSinkhornStreams = 4;  // 16 lanes per matrix
inline constexpr int64_t kMaxSinkhornRepeat = 45;

/// An n x n matrix on `lanes()` neighbouring lanes: element (i, o) is on lane i * side() + o of the
/// group. A side that is no power of two is padded; padding lanes always hold +0.
struct MatrixLanes {
  int64_t streams;

  int64_t side() const {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(streams)));
  }
  int64_t lanes() const { return side() * side(); }
  bool padded() const { return side() != streams; }
  dsl::Value row(const dsl::Value& lane) const { return lane / side() % side(); }
  dsl::Value col(const dsl::Value& lane) const { return lane % side(); }
};

/// Sums over `side` lanes that are `stride` apart; all of them get the same bits. Offsets side / 2,
/// ..., 1, so (x0 + x2) + (x1 + x3) for four lanes.
inline dsl::Value lane_sum(dsl::Builder& k, dsl::Value value, int64_t side, int64_t stride) {
  for (int64_t offset = side / 2; offset > 0; offset /= 2) {
    value = k.let("sum", value + k.shuffle_xor(value, offset * stride));
  }
  return value;
}

/// `value` inside the matrix, `padding` on padding lanes.
inline dsl::Value inside(const MatrixLanes& matrix, const dsl::Value& lane, const dsl::Value& value,
                         float padding) {
  if (!matrix.padded()) return value;
  return dsl::select(dsl::max(matrix.row(lane), matrix.col(lane)) < matrix.streams, value, padding);
}

/// Softmax over the columns, without eps. The result on padding lanes is meaningless.
inline dsl::Value softmax(dsl::Builder& k, const MatrixLanes& matrix, const dsl::Value& lane,
                          const dsl::Value& logit) {
  using namespace dsl;
  const int64_t side = matrix.side();
  auto top = k.let("top", inside(matrix, lane, logit, -std::numeric_limits<float>::infinity()));
  for (int64_t offset = side / 2; offset > 0; offset /= 2) {
    top = k.let("top", max(top, k.shuffle_xor(top, offset)));
  }
  auto power = k.let("power", inside(matrix, lane, exp(logit - top), 0.0f));
  return power / lane_sum(k, power, side, 1);
}

/// This lane's element of the projection of `logit`. All lanes of the warp take part; `lane` counts
/// from the first lane of the warp or the block. Order: softmax over the columns (no eps in its
/// divisor, eps added to the result); then columns, then repeat - 1 times rows and columns, each
/// divided by (sum + eps).
inline dsl::Value sinkhorn(dsl::Builder& k, const MatrixLanes& matrix, const dsl::Value& lane,
                           const dsl::Value& logit, const dsl::Value& repeat,
                           const dsl::Value& eps) {
  using namespace dsl;
  const int64_t side = matrix.side();
  auto element = k.var(
      DType::f32, inside(matrix, lane, softmax(k, matrix, lane, logit) + eps, 0.0f), "element");
  const auto normalise = [&](int64_t stride) {
    Value x = element;
    element = inside(matrix, lane, x / (lane_sum(k, x, side, stride) + eps), 0.0f);
  };
  normalise(side);
  k.serial(1, repeat, [&](Value) {
    normalise(1);
    normalise(side);
  });
  return element;
}

}  // namespace tessera::kernels::mhc
