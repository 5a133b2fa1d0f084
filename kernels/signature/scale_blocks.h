#pragma once
// The number of scales of a matrix, for a call and for a case.

#include <string>

#include "kernels/call_types.h"
#include "kernels/signature/scale_layout.h"
#include "kernels/signature/signature.h"

namespace tessera::kernels {

struct ScaleBlocks {
  int64_t rows, columns;
  std::string row_formula, column_formula;  // "ceil(T / 128)"
};

/// The scale blocks of the matrix that the tensor scales. Block extents that are not positive
/// numbers count as 1; calls reject them earlier.
ScaleBlocks scale_blocks(const Signature& signature, const TensorRule& scales, SfLayout layout,
                         const Scope& scope);

/// The layout that a parameter of the call names; row-major without a parameter.
SfLayout scale_layout(const TensorRule& scales, const Params& params);

}  // namespace tessera::kernels
