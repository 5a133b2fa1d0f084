#pragma once
// Numbers that a run of the fuzzers by hand sets.

#include <cstdint>
#include <cstdlib>

namespace tessera::test {

inline uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace tessera::test
