#pragma once
// The sum over a row that norms and activations share.

#include <vector>

namespace tessera::reference {

/// Adds the products a[i] b[i] in 512 lanes: quad q, elements 4q .. 4q + 3, goes to lane q % 512, in
/// ascending order from +0 by fma. Groups of 32 lanes are added in pairs at distance 1, 2, 4, 8, 16, then
/// the sums of the groups in ascending order.
float lane_sum(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace tessera::reference
