#pragma once
// Ops whose times no record has yet. A record takes an op off this list.

#include <set>
#include <string>

namespace tessera::test {

inline bool is_not_measured(const std::string& op) {
  static const std::set<std::string> ops = {};
  return ops.contains(op);
}

}  // namespace tessera::test
