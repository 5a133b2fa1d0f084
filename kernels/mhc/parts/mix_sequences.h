#pragma once
// The arithmetic of the hyper-connection mixes: one order of roundings per quantity, shared by all
// ops, so that a fused op equals the chain of plain ops bit for bit. Only explicit fma fuses a
// product with a sum.

#include <span>
#include <vector>

#include "dsl/value.h"

namespace tessera::kernels::mhc {

inline dsl::Value sigmoid(const dsl::Value& z) {
  return 1.0f / (1.0f + dsl::exp(0.0f - z));
}

/// The argument of the sigmoid of entry j of a projected row: one fma.
inline dsl::Value mix_logit(const dsl::Value& entry, const dsl::Value& scale,
                            const dsl::Value& base) {
  return dsl::fma(entry, scale, base);
}

/// The weight with which a sub-layer reads a stream, in (eps, 1 + eps).
inline dsl::Value pre_mix(const dsl::Value& z, const dsl::Value& eps) {
  return sigmoid(z) + eps;
}

/// The weight with which a stream receives the sub-layer's output, in (0, mult).
inline dsl::Value post_mix(const dsl::Value& z, const dsl::Value& mult) {
  return sigmoid(z) * mult;
}

/// One column of the sub-layer's input: fma over the streams in ascending order, from +0.
inline dsl::Value apply_pre_mix(std::span<const dsl::Value> pre,
                                std::span<const dsl::Value> streams) {
  dsl::Value sum = dsl::fma(pre[0], streams[0], 0.0f);
  for (size_t i = 1; i < streams.size(); ++i) sum = dsl::fma(pre[i], streams[i], sum);
  return sum;
}

/// The same for element (row, col) of streams in registers; `pre` is [rows, n] or longer.
inline dsl::Value apply_pre_mix(const dsl::Ref& pre, std::span<const dsl::Ref> streams,
                                const dsl::Value& row, const dsl::Value& col) {
  std::vector<dsl::Value> weights, values;
  for (size_t i = 0; i < streams.size(); ++i) {
    weights.push_back(pre(row, static_cast<int64_t>(i)));
    values.push_back(dsl::f32(streams[i](row, col)));
  }
  return apply_pre_mix(weights, values);
}

/// One column of output stream o. `comb` holds comb[i, o] for all i. Order: the rounded product of
/// stream 0, fma of the sub-layer's output, then fma of the other streams.
inline dsl::Value apply_post_mix(const dsl::Value& post, const dsl::Value& layer_output,
                                 std::span<const dsl::Value> comb,
                                 std::span<const dsl::Value> streams) {
  dsl::Value sum = dsl::fma(post, layer_output, comb[0] * streams[0]);
  for (size_t i = 1; i < streams.size(); ++i) sum = dsl::fma(comb[i], streams[i], sum);
  return sum;
}

}  // namespace tessera::kernels::mhc
