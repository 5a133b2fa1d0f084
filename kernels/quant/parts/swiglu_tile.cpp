#include "kernels/quant/parts/swiglu_tile.h"

#include "kernels/quant/parts/scale_access.h"

namespace tessera::kernels {

void cut_work(SwigluSpec& s, int64_t rows) {
  const int64_t values = rows * s.hidden;
  // Few values per thread hide latency if an H200 runs all blocks at once. Many short blocks cost
  // more, above all the atomics of the counts.
  s.per_thread = values <= int64_t{1} << (s.has_count() ? 18 : 21) ? 8 : 16;
  // ptxas loads `up` after the activation of `gate`, unless it has spare registers or a branch on
  // padding separates them. A launch bound of few blocks leaves spare registers.
  s.blocks_per_sm =
      is_ordinary_group(s.group) && s.experts == SwigluSpec::Experts::none && values <= 1 << 20 ? 10
                                                                                                : 0;
}

TokenTile pick_swiglu_tile(const SwigluSpec& s) {
  TokenCastSpec cast{};
  cast.in = s.in;
  cast.hidden = s.hidden;
  cast.group = s.group;
  if (!is_ordinary_group(s.group)) return whole_row_tile(s.hidden, 8, 32);
  TokenTile tile = pick_token_tile(cast, ScaleWriter::cols_together(s.sf_layout));
  // Small blocks balance the SMs, but each block adds its counts.
  if (s.per_thread == 16 && !s.has_count()) tile.threads = 64;
  tile.rows = s.per_thread * tile.threads / tile.cols;
  return tile;
}

layout::Layout runs_of_a_group(const TokenTile& tile) {
  return layout::Layout({tile.rows, tile.cols}, {{0, 1, tile.rows, tile.groups * 8, 0},
                                                 {1, 128, tile.groups, 8, 0},
                                                 {1, 64, 2, 0, 8},
                                                 {1, 8, 8, 1, 0},
                                                 {1, 1, 8, 0, 1}});
}

}  // namespace tessera::kernels
