// The table of targets, at the capabilities where a fact changes.

#include "dsl/base/target_facts.h"

#include "tests/support/catch.h"

using namespace tessera;

namespace {

TargetFacts facts(const char* target) {
  return facts_of(parse_target(target).value());
}

}  // namespace

TEST_CASE("a target has the limits of its GPU", "[target]") {
  CHECK(facts("sm_80").shared_memory == 163 * 1024);
  for (const char* target : {"sm_86", "sm_89", "sm_120", "sm_121a"}) {
    CAPTURE(target);
    CHECK(facts(target).shared_memory == 99 * 1024);
    CHECK(facts(target).threads == 1536);
  }
  CHECK(facts("sm_87").shared_memory == 163 * 1024);
  for (const char* target : {"sm_90", "sm_90a", "sm_100a", "sm_103f", "sm_110a"}) {
    CAPTURE(target);
    CHECK(facts(target).shared_memory == 227 * 1024);
  }
  CHECK(facts("sm_87").threads == 1536);
  CHECK(facts("sm_103a").threads == 2048);
  CHECK(facts("sm_86").blocks == 16);
  CHECK(facts("sm_89").blocks == 24);
  CHECK(facts("sm_90").blocks == 32);
  CHECK(facts("sm_89").max_cluster == 1);
  CHECK(facts("sm_90").max_cluster == kMaxCluster);
  CHECK(facts("sm_120a").max_cluster == 8);
  CHECK(registers_at_launch(384) == 168);
  CHECK(registers_at_launch(128) == kMaxLaunchRegisters);
}

TEST_CASE("a target has the instructions of its capability, and of its letter", "[target]") {
  CHECK_FALSE(facts("sm_86").has_fp8);
  CHECK(facts("sm_89").has_fp8);
  CHECK_FALSE(facts("sm_90a").has_fp4);
  CHECK(facts("sm_103a").has_fp4);
  CHECK_FALSE(facts("sm_100f").has_fp4);
  CHECK_FALSE(facts("sm_89").has_tensor_copies);
  CHECK(facts("sm_90").has_tensor_copies);
  CHECK(facts("sm_120").has_pdl);
  CHECK_FALSE(facts("sm_90").has_wgmma);
  CHECK(facts("sm_90a").has_wgmma);
  CHECK(facts("sm_90a").moves_registers);
  CHECK_FALSE(facts("sm_100a").has_wgmma);
  CHECK_FALSE(facts("sm_100").has_multicast);
  CHECK(facts("sm_100f").has_multicast);
  CHECK_FALSE(facts("sm_120a").has_multicast);
  CHECK(facts("sm_120a").writes_maps);
  CHECK_FALSE(facts("sm_120").writes_maps);
  CHECK(facts("sm_90").has_known_sums);
  CHECK_FALSE(facts("sm_100a").has_known_sums);
}
