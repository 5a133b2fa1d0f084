#pragma once
// Registers that a fragment takes.

#include "dsl/ir/tile.h"
#include "dsl/layout/layout.h"

namespace tessera::ir {

/// At least so many registers of each of the `threads` that hold the fragment.
inline int64_t registers_of(const Buffer& fragment, int64_t threads) {
  int64_t elements = 1;
  for (const Expr& extent : fragment.shape) elements *= extent->integer;
  const int64_t of_each_thread =
      fragment.layout ? fragment.layout->num_slots() : (elements + threads - 1) / threads;
  return (of_each_thread * bits(fragment.dtype) + 31) / 32;
}

}  // namespace tessera::ir
