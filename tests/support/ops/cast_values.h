#pragma once
// Values that the cases of several quantising ops contain.

#include <vector>

#include "dsl/base/dtype.h"

namespace tessera::test {

/// The ties between neighbouring codes of the format, one step to either side of them, and the codes
/// themselves, with both signs.
std::vector<float> tie_values(DType format);

/// Contents of groups that share a scale: largest values at the boundaries of scale rounding, zeros,
/// subnormals, NaN and infinities.
std::vector<std::vector<double>> boundary_groups();

}  // namespace tessera::test
