#pragma once
// The tile of ops that stream whole rows, left open to measurement: any tile of one vector per thread gives the
// same bits, since no element depends on another.

#include <string_view>

#include "kernels/jit/tune.h"
#include "kernels/mhc/parts/row_tile.h"

namespace tessera::kernels::mhc {

/// A RowTile as the last member of a Spec.
struct RowChoice {
  int32_t rows, cols, threads;

  RowTile tile(int64_t hidden) const { return {rows, cols, (hidden + cols - 1) / cols, threads}; }
};

/// `spec` is the rest of the Spec by name, "hidden" in it.
RowChoice choose_row_tile(std::string_view op, std::map<std::string, int64_t> spec, int64_t tokens,
                          Device device);

}  // namespace tessera::kernels::mhc
