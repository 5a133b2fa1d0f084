#pragma once
// Tiling of swiglu_forward: values per thread, blocks, and the tile of a block.

#include "dsl/layout/layout.h"
#include "kernels/quant/parts/swiglu_forward.h"
#include "kernels/quant/parts/token_cast.h"

namespace tessera::kernels {

/// Sets per_thread and blocks_per_sm for `rows` rows; the other fields are set already.
void cut_work(SwigluSpec& spec, int64_t rows);

/// The tile of a block, per_thread values per thread.
TokenTile pick_swiglu_tile(const SwigluSpec& spec);
/// (rows, cols): each thread has two runs of 8 columns in one group.
layout::Layout runs_of_a_group(const TokenTile& tile);

}  // namespace tessera::kernels
