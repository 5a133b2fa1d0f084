#pragma once
// Catch2 2.13 (Debian 12) and 3 (Ubuntu 24.04) under one include.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <iostream>

/// Ends the test case; ctest reports it as skipped. Catch2 2.13 has no SKIP().
#define TESSERA_SKIP(reason)                           \
  do {                                                 \
    std::cout << "SKIPPED: " << (reason) << std::endl; \
    return;                                            \
  } while (false)
