#pragma once
// Tests whose worth grows with their length run in a bounded form by default and in full with
// TESSERA_LONG_TESTS=1.

#include <cstdlib>
#include <string_view>

namespace tessera::test {

inline bool long_tests() {
  const char* value = std::getenv("TESSERA_LONG_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

/// `full` in the long form, else `bounded`.
inline int rounds(int bounded, int full) {
  return long_tests() ? full : bounded;
}

}  // namespace tessera::test
