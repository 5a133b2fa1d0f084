// The runtime's acceptance list on a real GPU, 10 and 20: the shipped kernels in other processes.

#include <future>
#include <map>
#include <string>

#include "kernels/op.h"
#include "runtime/cache/tuned.h"
#include "runtime/driver/device.h"
#include "runtime/nvrtc/target.h"
#include "tests/gpu/acceptance/vectors.h"
#include "tests/runtime/long_tests.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/places.h"
#include "tools/lib/tune/tuner.h"

using namespace tessera;
using namespace tessera::runtime;

namespace {

/// A choice for a bench case of post_fwd that is not the standard one.
void store_another_choice(const std::string& folder, const DeviceInfo& device) {
  const kernels::OpInfo& op = kernels::find_op("post_fwd");
  const Target target = targets_that_run_on(device.major, device.minor).front();
  const auto asked = tools::open_choices(op, op.bench.front(), target);
  REQUIRE(asked.size() == 1);
  const auto& [name, space, facts] = asked.front();
  TunedEntry entry;
  entry.key = {name,        space->revision, facts.spec,       space->bucket_of(facts),
               device.name, device.num_sms,  to_string(target)};
  entry.choice = kernels::jit::named(*space, candidates(*space, facts).at(1));
  entry.date = "2026-01-01";
  Options options;
  options.tune_dir = folder;
  REQUIRE(publish_tuned(options, entry).empty());
}

}  // namespace

TEST_CASE("all shipped kernels run from a bundle on a machine without libnvrtc (R22.10, U48)",
          "[gpu]") {
  REQUIRE_GPU();
  const DeviceInfo& device = device_info(0);
  const std::string arch = to_string(targets_that_run_on(device.major, device.minor).front());
  const test::ScratchFolder scratch;
  const std::string bundle = scratch / "kernels.tsb";
  const std::string program = test::in_build("every_op_program");
  const std::string tuned = "TESSERA_TUNE_DIR=" + scratch / "tuned";
  store_another_choice(scratch / "tuned", device);
  const test::ChildResult made =
      test::run_program({test::in_build("tools/tessera"), "compile", "all", "--arch", arch, "--gpu",
                         device.name, "--out", bundle},
                        {"TESSERA_CACHE_DIR=" + scratch / "cache", tuned});
  CAPTURE(made.output);
  REQUIRE(made.exit_code == 0);
  const test::ChildResult compiled =
      test::run_program({program, "no-compiler"}, {"TESSERA_CACHE_DIR=" + scratch / "cache"});
  const test::ChildResult bundled = test::run_program(
      {program, "no-compiler"},
      {"TESSERA_JIT=off", "TESSERA_NVRTC=/nowhere/libnvrtc.so", "TESSERA_CACHE_DIR=" + bundle});
  CHECK(compiled.exit_code == 0);
  CHECK(bundled.exit_code == 0);
  CHECK(bundled.output == compiled.output);
  // Whatever the tile sizes: those of the kernels' own rules and the stored ones (U48).
  for (const char* mode : {"TESSERA_TUNE=off", "TESSERA_TUNE=cached"}) {
    const test::ChildResult prepared = test::run_program(
        {program, "bench", "no-compiler"}, {"TESSERA_JIT=off", "TESSERA_NVRTC=/nowhere/libnvrtc.so",
                                            "TESSERA_CACHE_DIR=" + bundle, tuned, mode});
    CAPTURE(mode, prepared.output);
    CHECK(prepared.exit_code == 0);
  }
}

TEST_CASE("compute-sanitizer finds nothing in the shipped kernels (R22.20)", "[gpu][slow]") {
  REQUIRE_GPU();
  if (!test::long_tests()) TESSERA_SKIP("takes minutes; set TESSERA_LONG_TESTS=1");
  if (test::run_program({"compute-sanitizer", "--version"}, {}).exit_code == 127) {
    TESSERA_SKIP("no compute-sanitizer");
  }
  const std::string tool =
      GENERATE(as<std::string>(), "memcheck", "racecheck", "initcheck", "synccheck");
  const test::ScratchFolder scratch;
  std::map<std::string, std::future<test::ChildResult>> checks;  // by op, side by side
  for (const kernels::OpInfo& op : kernels::ops()) {
    checks[op.name] = std::async(std::launch::async, [&] {
      return test::run_program(
          {"compute-sanitizer", "--tool", tool, "--error-exitcode", "9", test::in_build("test_gpu"),
           "ops equal their references on the GPU", "-c", op.name},
          {"TESSERA_CACHE_DIR=" + scratch / "cache"});
    });
  }
  const std::string summary =
      tool == "racecheck" ? "RACECHECK SUMMARY: 0 hazards" : "ERROR SUMMARY: 0 errors";
  for (auto& [op, check] : checks) {
    const test::ChildResult checked = check.get();
    CAPTURE(tool, op, checked.output);
    CHECK(checked.exit_code == 0);
    CHECK(checked.output.find(summary) != std::string::npos);
    CHECK(checked.output.find("All tests passed") != std::string::npos);
  }
}
