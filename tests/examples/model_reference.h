#pragma once
// The parts of examples/model by their definitions, in f64: dense, no caches, no rounding of what lies between. Weights are
// read as the ops read them. Shares no code with the ops.

#include <cstdint>
#include <functional>
#include <vector>

#include "examples/model/weights.h"

namespace tessera::test {

using Vector = std::vector<double>;

/// The elements of a bf16, f32 or e4m3 tensor.
Vector values_of(const model::Tensor& tensor);

/// The results of a boundary from the streams [streams * hidden] of a token.
struct Mixed {
  Vector input, post, comb;
};
Mixed mixed_input(const model::MixWeights& weights, const Vector& streams);
/// The streams behind a sub-layer.
Vector next_streams(const Vector& output, const Vector& streams, const Vector& post,
                    const Vector& comb);

/// The streams with what the tokens before and at `position` recall.
Vector recalled(const model::EngramWeights& weights, const std::vector<int32_t>& tokens,
                int64_t position, const Vector& streams);

/// Attention of one layer over one text.
class AttentionReference {
 public:
  /// `inputs`: a row for each token.
  AttentionReference(const model::Weights& weights, size_t layer,
                     const std::vector<Vector>& inputs);

  int64_t num_entries(int64_t position) const;
  /// The indexer's scores of the entries that a token sees.
  Vector scores(int64_t position) const;
  /// The output of a token that sees its window and those entries.
  Vector output(int64_t position, const std::vector<int64_t>& entries) const;

 private:
  const Vector cos_sin_;
  int64_t ratio_;
  const std::vector<Vector>& inputs_;
  Vector in_, index_, out_, sink_;
  std::vector<Vector> keys_, entries_, index_entries_;
};

/// The experts of a token, with their weights: slot by slot.
struct Routed {
  std::vector<int64_t> ids;
  Vector weights;
};
Routed routed(const model::ExpertWeights& weights, const Vector& input, int32_t token);
Vector expert_output(const model::ExpertWeights& weights, const Vector& input,
                     const Routed& routed);

Vector logits(const model::Weights& weights, const Vector& streams);

}  // namespace tessera::test
