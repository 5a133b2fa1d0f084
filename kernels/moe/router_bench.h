#pragma once
// Shapes of the router's examples and benchmarks.

#include "kernels/op.h"

namespace tessera::kernels::moe {

std::vector<BenchCase> router_examples();
std::vector<BenchCase> router_bench();

}  // namespace tessera::kernels::moe
