#pragma once
// The cases that are measured, as cases for a test: the sizes of models.

#include "kernels/op.h"
#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// Inputs and parameters of a measured case, with random values where it states none. Compared bit
/// for bit unless the caller says otherwise.
OpCase case_of(const kernels::BenchCase& measured);

}  // namespace tessera::test
