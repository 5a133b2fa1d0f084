#pragma once
// Cases of get_fused_mapping for examples and benchmarks.

#include <vector>

#include "kernels/op.h"

namespace tessera::kernels::moe {

std::vector<BenchCase> mapping_examples();
std::vector<BenchCase> mapping_bench();

}  // namespace tessera::kernels::moe
