#pragma once
// Catch2 2.13 (Debian 12) and 3 (Ubuntu 24.04) under one include.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <string>

namespace tessera::test {

/// Printed as "SKIPPED: reason" when the program ends, unless a test failed: a skip never hides a
/// failure.
void note_skip(const std::string& reason);

}  // namespace tessera::test

/// Ends the test case; ctest reports it as skipped. Catch2 2.13 has no SKIP().
#define TESSERA_SKIP(reason)            \
  do {                                  \
    ::tessera::test::note_skip(reason); \
    return;                             \
  } while (false)
