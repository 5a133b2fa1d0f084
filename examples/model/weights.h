#pragma once
// The weights of the model in the dtypes in which the ops read them: random numbers of a seed, but for its memory (memory.h).

#include <cstdint>
#include <vector>

#include "sizes.h"
#include "tensor.h"

namespace model {

/// From the residual streams to the input of a sub-layer: mhc_boundary.
struct MixWeights {
  Tensor fn, scale, base;
  Tensor norm;
};

/// KV entries from windows of tokens.
struct CompressorWeights {
  Tensor ape;  // the bias of the scores by their place in the window
  Tensor norm;
};

/// Columns of the product that makes all of attention from a token.
struct ProjectedColumns {
  int64_t query, key, compressor;
  int64_t index_compressor, index_weight;  // of ratio 4
  int64_t count;
};
ProjectedColumns projected_columns(int64_t ratio);

struct AttentionWeights {
  Tensor in;     // [columns, hidden]: projected_columns
  Tensor index;  // [heads * channels, hidden]: index_q_store reads no columns of a wider matrix
  Tensor key_norm, sink, out;
  CompressorWeights compressor, index_compressor;
};

/// Matrices of experts in MXFP4: as they are stored, and as mxfp4_prepack lays them out for the products.
struct Fp4Weights {
  Tensor codes, exponents;
  Tensor packed, shift, scale;
};

struct ExpertWeights {
  Tensor gate;                    // [experts, hidden]
  Tensor bias, table;             // of the scores; or the experts of each token id
  Tensor w13, w13_sf, w2, w2_sf;  // e4m3, a scale for each 128 x 128
  Fp4Weights fp4_13, fp4_2;       // instead of them
};

struct EngramWeights {
  Tensor multipliers, sizes, offsets;  // of the hash
  Tensor table;
  Tensor key_value;  // from a row of entries to a key of each stream and a value
  Tensor norm;       // of streams and keys, one product of the two
};

struct LayerWeights {
  MixWeights before_attention, before_experts;
  AttentionWeights attention;
  ExpertWeights experts;
  EngramWeights engram;
};

struct Weights {
  Tensor embedding;  // [vocabulary, hidden]
  Tensor cos_sin;    // [context, rotated]: cosine and sine of each pair of channels
  std::vector<LayerWeights> layers;
  MixWeights head;  // its base and fn have a row for each stream
  Tensor out;       // [vocabulary, hidden]
};

Weights random_weights(ts::Device device, uint64_t seed);

}  // namespace model
