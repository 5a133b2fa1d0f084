#pragma once
// How many scales a matrix of a signature has, of a call and of a case.

#include <string>

#include "kernels/call_types.h"
#include "kernels/quant/scale_layout.h"
#include "kernels/signature/signature.h"

namespace tessera::kernels {

struct ScaleBlocks {
  int64_t rows, columns;
  std::string row_formula, column_formula;  // "ceil(T / 128)"
};

/// The blocks of the matrix that the tensor scales. Rows and columns of a block that are no positive
/// numbers count as 1; a call refuses them before.
ScaleBlocks scale_blocks(const Signature& signature, const TensorRule& scales, SfLayout layout,
                         const Scope& scope);

/// The layout that a parameter of the call names, row-major without one.
SfLayout scale_layout(const TensorRule& scales, const Params& params);

}  // namespace tessera::kernels
