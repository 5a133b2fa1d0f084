#pragma once
// Calls of swiglu_forward_and_per_token_cast that stand for it: as examples and on the benchmark.

#include "kernels/op.h"

namespace tessera::kernels {

std::vector<BenchCase> swiglu_examples();
std::vector<BenchCase> swiglu_bench();

}  // namespace tessera::kernels
