#pragma once
// One test case per family of ops: together they would take minutes.

#include "tests/support/catch.h"

/// Test cases "NAME: FAMILY", each of which calls `check(family)`. op_listing_test sees that no family
/// is left out.
///   void check_family(const std::string& family) { ... }
///   TESSERA_TEST_EACH_FAMILY("ops do this", "[kernels]", check_family)
#define TESSERA_TEST_EACH_FAMILY(name, tags, check) \
  TEST_CASE(name ": moe", tags) {                   \
    check("moe");                                   \
  }                                                 \
  TEST_CASE(name ": quant", tags) {                 \
    check("quant");                                 \
  }                                                 \
  TEST_CASE(name ": transpose", tags) {             \
    check("transpose");                             \
  }                                                 \
  TEST_CASE(name ": engram", tags) {                \
    check("engram");                                \
  }                                                 \
  TEST_CASE(name ": mhc", tags) {                   \
    check("mhc");                                   \
  }                                                 \
  TEST_CASE(name ": modeling", tags) {              \
    check("modeling");                              \
  }                                                 \
  TEST_CASE(name ": gemm", tags) {                  \
    check("gemm");                                  \
  }                                                 \
  TEST_CASE(name ": serving", tags) {               \
    check("serving");                               \
  }                                                 \
  TEST_CASE(name ": attention", tags) {             \
    check("attention");                             \
  }                                                 \
  TEST_CASE(name ": linear", tags) {                \
    check("linear");                                \
  }
