#pragma once
// The kernel of multilayer_recompute.

#include "dsl/ir/tile.h"

namespace tessera::kernels::mhc {

/// Sub-layers per launch; each further launch reads the streams again.
inline constexpr int64_t kLayers = 10;

/// Everything that generated code depends on.
struct LayersSpec {
  int32_t streams, hidden;
  int32_t align, mix_align;  // bytes, of the bf16 tensors and of the mixes
};

/// Tensors: initial_residual [tokens, streams, hidden], then for each layer L, null where the call
/// has no such layer: pre_mix_list_L, layer_output_list_L, post_mix_list_L, comb_mix_list_L;
/// layer_input_list_L, residual_list_L.
ir::Kernel build_layers(const LayersSpec& s);

}  // namespace tessera::kernels::mhc
