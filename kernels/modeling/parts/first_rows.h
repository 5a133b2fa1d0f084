#pragma once
// The head uses one row of `fn` per stream and ignores the rows after them.

#include "kernels/signature/chain.h"

namespace tessera::kernels::mhc {

/// Adds the first rows, one per stream, of the tensor `name` (fn or its gradient) to the chain as
/// `first`.
inline void first_rows(Chain& chain, const char* name, const char* first) {
  const Call& c = chain.call();
  TensorView rows = c.given(name);
  if (is_absent(rows)) rows = {nullptr, DType::f32, {c["n"], c["n"] * c["H"]}, c.device()};
  rows.shape[0] = c["n"];
  chain.set(first, rows);
}

}  // namespace tessera::kernels::mhc
