#pragma once
// Cases of the attention family, which cases_of has too.

#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// Sums that are exact and whole exponents, so that every target has their bits, and others; all masks.
std::vector<OpCase> attention_fwd_cases();

}  // namespace tessera::test
