#pragma once
// Mistakes that a kernel of any op could make in an output, made from its shape and dtype alone.

#include <string>
#include <vector>

#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// Rows are along the last extent; those of a tensor of rank 1 have one element each.
struct Mutation {
  std::string name;
  /// Changes the output `name` of one run, unless the mistake would not show in it. `rule` says what
  /// the smallest mistake is.
  void (*make)(HostTensors& outputs, const std::string& name, const CompareRule& rule);
};

const std::vector<Mutation>& mutations();

/// False where a mutation left the outputs as they were.
bool differ(const HostTensors& a, const HostTensors& b);

}  // namespace tessera::test
