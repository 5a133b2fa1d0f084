#pragma once
// Compositions, and the fused op of theirs, as the chains of the ops that they are made of.

#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// Runs all cases of a composition, or of pre_big_fuse, as one op and as the ops of its chain; what
/// differs in a bit fails.
CaseReport compare_with_chain(const std::string& op, const std::vector<OpCase>& cases,
                              Device device);

}  // namespace tessera::test
