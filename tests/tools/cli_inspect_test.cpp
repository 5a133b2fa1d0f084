// tessera show, check, bench and doctor on shipped ops, as a user types them.

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/each_family.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

void show_family(const std::string& family) {
  for (const kernels::OpInfo& op : kernels::ops()) {
    if (op.family != family) continue;
    for (const char* stage : {"ir", "layout", "thread", "cuda", "explain"}) {
      CAPTURE(op.name, stage);
      const ProgramResult shown = run_tessera({"show", op.name, "--stage", stage});
      CAPTURE(shown.err);
      CHECK(shown.exit_code == 0);
      CHECK(shown.err.empty());
      CHECK(shown.out.find(std::string(", stage ") + stage + "\n") != std::string::npos);
      CHECK(shown.out.size() > 60);
    }
    const ProgramResult cuda = run_tessera({"show", op.name});
    CHECK(cuda.out.find("__global__") != std::string::npos);
  }
}

TESSERA_TEST_EACH_FAMILY("show prints each stage of an op's kernels", "[cli][show][slow]",
                         show_family)

TEST_CASE("show refuses unknown targets", "[cli][show]") {
  const ProgramResult arch = run_tessera({"show", "transpose", "--stage", "ptx", "--arch", "sm9"});
  CHECK(arch.exit_code == 2);
  CHECK(arch.err ==
        "tessera: unknown target 'sm9'\n"
        "  expected  sm_80, sm_89, sm_90a, ...\n"
        "  got       sm9\n");
  CHECK(run_tessera({"show", "transpose", "--stage", "cuda", "--arch", "sm9"}).exit_code == 2);
}

TEST_CASE("show --full prints a text that needs no other", "[cli][show]") {
  const ProgramResult part = run_tessera({"show", "per_token_cast"});
  const ProgramResult full = run_tessera({"show", "per_token_cast", "--full"});
  CHECK(full.exit_code == 0);
  CHECK(full.out.size() > part.out.size());
  CHECK(full.out.find("__device__") != std::string::npos);
  CHECK(part.out.find("__device__") == std::string::npos);
}

TEST_CASE("show compiles for TESSERA_ARCH without a device", "[cli][show]") {
  if (run_tessera({"doctor"}).out.find("targets ") == std::string::npos) TESSERA_SKIP("no NVRTC");
  const ProgramResult ptx = run_tessera({"show", "transpose", "--stage", "ptx"}, "",
                                        {"CUDA_VISIBLE_DEVICES=", "TESSERA_ARCH=sm_80"});
  CHECK(ptx.exit_code == 0);
  CHECK(ptx.out.find("\n.target sm_80\n") != std::string::npos);
}

TEST_CASE("check runs the examples with every trap and counts", "[cli][check][slow]") {
  const TemporaryFolder folder;
  const ProgramResult result = run_tessera({"check", "all", "--json", folder.path("counts")});
  CAPTURE(result.err, result.out);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  const auto json = nlohmann::json::parse(read_text(folder.path("counts")));
  size_t examples = 0;
  for (const kernels::OpInfo& op : kernels::ops()) examples += op.examples.size();
  REQUIRE(json.at("checks").size() == examples);
  for (const auto& check : json.at("checks")) {
    CAPTURE(check.dump());
    CHECK(check.at("error").is_null());
    CHECK_FALSE(check.at("kernels").empty());
    CHECK(check.at("kernels").at(0).at("global_store_bytes").get<int64_t>() > 0);
    for (const auto& kernel : check.at("kernels")) {
      int64_t sectors = 0, wavefronts = 0;
      for (const auto& access : kernel.at("accesses")) {
        sectors += access.at("sectors").get<int64_t>();
        wavefronts += access.at("wavefronts").get<int64_t>();
      }
      CHECK(32 * sectors == kernel.at("moved_bytes").get<int64_t>());
      CHECK(wavefronts == kernel.at("shared_wavefronts").get<int64_t>());
    }
  }
}

TEST_CASE("explain says an equal note of a section once, and how often", "[cli]") {
  const ProgramResult shown =
      run_tessera({"show", "norm_fn_fwd", "--stage", "explain", "--arch", "sm_90a"});
  REQUIRE(shown.exit_code == 0);
  CHECK(shown.out.find(" (x 2)\n") != std::string::npos);
  std::istringstream lines(shown.out);
  std::set<std::string> of_section;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(' ')) of_section.clear();
    CAPTURE(line);
    CHECK(of_section.insert(line).second);
  }
}

TEST_CASE("check counts the same with and without the compiler", "[cli][check]") {
  const TemporaryFolder folder;
  const ProgramResult plain = run_tessera({"check", "topk_gate", "--json", folder.path("counts")});
  CAPTURE(plain.err, plain.out);
  REQUIRE(plain.exit_code == 0);
  CHECK(plain.out.find("  moved  sectors  loads  stores  banks  ") != std::string::npos);
  CHECK(plain.out.find("registers") == std::string::npos);
  const auto counts = nlohmann::json::parse(read_text(folder.path("counts")));
  const auto& first = counts.at("checks").at(0).at("kernels").at(0);
  CHECK(first.at("kernel") == "topk_gate");
  CHECK(first.at("moved_bytes") == 32 * (first.at("global_load_sectors").get<int64_t>() +
                                         first.at("global_store_sectors").get<int64_t>()));
  CHECK(first.at("sectors_over_least") == 0);
  CHECK(first.at("live_registers") > 0);
  CHECK_FALSE(first.contains("registers"));

  const ProgramResult lines = run_tessera({"check", "batched_transpose", "--lines"});
  CHECK(lines.exit_code == 0);
  CHECK(lines.out.find("  sectors over least  wavefronts over ideal\n") != std::string::npos);
  CHECK(lines.out.find("  batched_transpose.cpp:") != std::string::npos);
  CHECK(lines.out.find("  store 16 x u8 out ") != std::string::npos);

  const ProgramResult wrong = run_tessera({"check", "topk_gate", "--arch", "hopper"});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find("hopper") != std::string::npos);

  const ProgramResult compiled =
      run_tessera({"check", "topk_gate", "--arch", "sm_90a", "--json", folder.path("compiled")});
  if (compiled.err.find("libnvrtc") != std::string::npos) TESSERA_SKIP(compiled.err);
  CAPTURE(compiled.err, compiled.out);
  REQUIRE(compiled.exit_code == 0);
  CHECK(compiled.out.find("  registers  spilled  shared\n") != std::string::npos);
  auto with = nlohmann::json::parse(read_text(folder.path("compiled")));
  for (auto& check : with.at("checks")) {
    for (auto& kernel : check.at("kernels")) {
      CHECK(kernel.at("registers") > 0);
      CHECK(kernel.at("spill_bytes") == 0);
      for (const char* name : {"registers", "spill_bytes", "shared_bytes"}) kernel.erase(name);
    }
  }
  CHECK(with == counts);
}

TEST_CASE("check runs the program of the target that it is asked for", "[cli][check]") {
  const TemporaryFolder folder;
  const auto counts = [&](std::vector<std::string> more, const std::vector<std::string>& switches,
                          std::string& skip) {
    std::vector<std::string> words = {"check",      "gemm_bf16", "--case",
                                      "M=72 N=136", "--json",    folder.path("counts")};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_tessera(words, "", switches);
    if (result.err.find("libnvrtc") != std::string::npos) {
      skip = result.err;
      return nlohmann::json();
    }
    CAPTURE(result.err, result.out);
    REQUIRE(result.exit_code == 0);
    auto json = nlohmann::json::parse(read_text(folder.path("counts")));
    for (auto& kernel : json.at("checks").at(0).at("kernels")) {
      for (const char* name : {"registers", "spill_bytes", "shared_bytes"}) kernel.erase(name);
    }
    return json;
  };
  std::string skip;
  const auto by_wgmma = counts({}, {}, skip);
  const auto by_mma = counts({}, {"TESSERA_CPU_TARGET=sm_80"}, skip);
  const auto requests = [](const nlohmann::json& json) {
    return json.at("checks").at(0).at("kernels").at(0).at("shared_requests").get<int64_t>();
  };
  // wgmma reads its operands itself, mma.sync by loads of matrices.
  CHECK(requests(by_wgmma) < requests(by_mma));
  const auto asked = counts({"--arch", "sm_80"}, {}, skip);
  if (!skip.empty()) TESSERA_SKIP(skip);
  CHECK(asked == by_mma);
}

TEST_CASE("bench says what it needs", "[cli][bench]") {
  const ProgramResult skipped =
      run_tessera({"bench", "transpose", "--skip-without-gpu"}, "", {"CUDA_VISIBLE_DEVICES="});
  CHECK(skipped.exit_code == 0);
  CHECK(skipped.out.find("SKIPPED: no CUDA device (") == 0);
  const ProgramResult failed = run_tessera({"bench", "transpose"}, "", {"CUDA_VISIBLE_DEVICES="});
  CHECK(failed.exit_code == 1);
  CHECK(failed.err.find("tessera: bench needs a GPU\n  expected  a CUDA device\n  got       ") ==
        0);
  const ProgramResult peer = run_tessera({"bench", "--peer", "/no/such/file"});
  CHECK(peer.exit_code == 2);
  CHECK(peer.err.find("tessera: /no/such/file: cannot be opened\n") == 0);
  const ProgramResult no_case = run_tessera({"bench", "transpose", "--case", "no such"});
  CHECK(no_case.exit_code == 2);
  CHECK(no_case.err ==
        "tessera: argument 'case' is in the label of no case\n"
        "  expected  a part of a label, as the table shows it\n"
        "  got       'no such'\n");
  CHECK(run_tessera({"bench", "transpose", "--case", "bf16", "--launch"}).exit_code == 2);
  const ProgramResult limit = run_tessera({"bench", "transpose", "--fail-at", "2"});
  CHECK(limit.exit_code == 2);
  CHECK(limit.err.find("--fail-at requires --compile") != std::string::npos);
  for (const char* value : {"nan", "-1", "many"}) {
    CHECK(run_tessera({"bench", "--compile", "--fail-at", value}).exit_code == 2);
  }
  CHECK(run_tessera({"bench", "--compile", "--fail-at", "nan"}).err ==
        "tessera: argument 'fail-at' has a wrong value\n"
        "  expected  a number above 0: times the limit\n"
        "  got       nan\n");
}

TEST_CASE("doctor says which compiler built the program", "[cli]") {
  const std::string text = run_tessera({"doctor"}).out;
  const bool named = text.find(" ops, compiled by GCC ") != std::string::npos ||
                     text.find("Clang 1") != std::string::npos;
  CAPTURE(text);
  CHECK(named);
}

TEST_CASE("bench --compile prints CPU times and enforces a limit", "[cli][bench][slow]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const ProgramResult table = run_tessera({"bench", "transpose", "--compile"});
  CAPTURE(table.err);
  CHECK(table.exit_code == 0);
  CHECK(table.out.find("NVRTC ms") != std::string::npos);
  const ProgramResult slow = run_tessera({"bench", "transpose", "--compile", "--fail-at", "0.001"});
  CHECK(slow.exit_code == 1);
  CHECK(slow.err.find(" kernels take more than 0.001 times their limit\n") != std::string::npos);
}

}  // namespace
}  // namespace tessera::tests
