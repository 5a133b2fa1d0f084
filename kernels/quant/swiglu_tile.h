#pragma once
// How the work of swiglu_forward is cut: values of a thread, blocks, and the tile of a block.

#include "dsl/layout/layout.h"
#include "kernels/quant/swiglu_forward.h"
#include "kernels/quant/token_cast.h"

namespace tessera::kernels {

/// Sets per_thread and blocks_per_sm for so many rows; the rest of `spec` is there.
void cut_work(SwigluSpec& spec, int64_t rows);

/// The tile of a block: per_thread values in each of its threads.
TokenTile pick_swiglu_tile(const SwigluSpec& spec);
/// Each thread has two runs of 8 columns, in one group: (rows, cols).
layout::Layout runs_of_a_group(const TokenTile& tile);

}  // namespace tessera::kernels
