#pragma once
// The model: a decoder in the manner of DeepSeek-V4, made of ops alone.
//
//   token ids -> embedding -> layers: [Engram] attention, experts -> head -> logits
//
// Four residual streams go through it (manifold hyper-connections). Between two sub-layers stands mhc_boundary: it adds
// the output of one to the streams, and mixes and normalises the input of the next. attention.cpp and experts.cpp have the
// sub-layers.
//
// Prefill and decode are one path. All rows of a step are tokens, each with its own list of keys; only the compressor has an
// op for runs of tokens and another one for single tokens. No bit of a row depends on the other rows of its step.

#include <tessera/kernels/op_arguments.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sizes.h"
#include "step.h"
#include "tensor.h"
#include "weights.h"

namespace model {

/// The tensors of steps of one shape that kernels write.
struct Activations {
  Activations(ts::Device device, Shape shape);

  // Between sub-layers; of streams and mixes those before and after a boundary.
  Tensor streams[2], post[2], comb[2];
  Tensor input, output;
  Tensor no_streams, no_post, all_post, no_comb, same_comb;  // constant mixes
  // Engram
  Tensor entries, key_value;
  // Attention
  Tensor plan4, writes4, counts4, plan128, writes128, counts128;
  Tensor projected, query, index_query, index_codes, index_weights, scores, keys4;
  Tensor attended, max_logits, lse;
  // Experts
  Tensor expert_ids, expert_weights;  // i64; a table's are i32
  Tensor table_ids;
  // Head
  Tensor row, normalised, logits;
};

/// The caches of a layer.
struct Caches {
  Tensor keys;                // [slots, channels]: raw keys and entries
  Tensor state, index_state;  // raw rows that later windows of the compressors need
  Tensor index_keys;          // of entries, for the indexer
};

/// Gets the parts of a step one after the other, and runs them.
using RunPart = std::function<void(const std::string& name, const std::function<void()>& part)>;

/// The kernels that a part launches, by the op that launches them.
struct PartLaunches {
  std::string name;
  std::vector<std::string> ops;
};

class Model {
 public:
  /// Steps are launched into `stream`: not the default one for those that will be captured.
  Model(ts::Device device, uint64_t seed, tessera::kernels::Stream stream = nullptr);

  /// The step of a shape, to plan. It stays where it is.
  Step& step(Shape shape);
  const Activations& activations(Shape shape);
  const Weights& weights() const { return weights_; }
  const Caches& caches(size_t layer) const { return caches_[layer]; }

  /// Runs a planned step and returns the logits of its rows.
  std::vector<float> run(const Step& step);
  void run(const Step& step, const RunPart& run_part);
  /// Compiles and loads the kernels of a step and launches nothing; after that a step may be captured.
  void prepare(Shape shape);
  /// Makes the step, and lists what it launches.
  std::vector<PartLaunches> launches(const Step& step);

 private:
  struct Now;  // a step on its way
  struct OfShape {
    Step step;
    Activations activations;
  };

  OfShape& of(Shape shape);
  void plan_compressors(Now& now);
  void begin(Now& now);
  void engram(Now& now, const EngramWeights& weights);
  void boundary(Now& now, const MixWeights& weights);
  void attention(Now& now, size_t layer);
  void compress(Now& now, size_t layer);
  void choose_entries(Now& now, size_t layer);
  void experts(Now& now, size_t layer);
  void head(Now& now);

  /// Calls an op that needs scratch memory. All share it: they run one after the other.
  template <class Call>
  Call with_scratch(Call call);
  void* scratch(int64_t bytes);

  ts::Device device_;
  tessera::kernels::Stream stream_;
  Weights weights_;
  std::vector<Caches> caches_;
  std::map<Shape, std::unique_ptr<OfShape>> shapes_;
  std::vector<Tensor> scratch_;  // growing; graphs may hold the smaller ones
};

/// A step on its way through the layers.
struct Model::Now {
  const Step& step;
  Activations& a;
  ts::TensorView output, streams, post, comb;  // of the last sub-layer
  int spare = 0;                               // of two streams and mixes, the ones to write

  int64_t rows() const { return step.shape.rows; }
};

template <class Call>
Call Model::with_scratch(Call call) {
  call.workspace = workspace_of(call);
  if (call.workspace.rank() > 0) call.workspace.data = scratch(call.workspace.span_bytes());
  return call;
}

}  // namespace model
