#pragma once
// The head has a row of `fn` per stream; what stands behind them is not used.

#include "kernels/signature/chain.h"

namespace tessera::kernels::mhc {

/// As many rows of the tensor `name`, fn or its gradient, as there are streams, as `first`.
inline void first_rows(Chain& chain, const char* name, const char* first) {
  const Call& c = chain.call();
  chain.set(first, {c.given(name).data, DType::f32, {c["n"], c["n"] * c["H"]}, c.device()});
}

}  // namespace tessera::kernels::mhc
