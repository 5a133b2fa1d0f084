// tessera compile and tessera cache, as a user runs them. No GPU needed; NVRTC is.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/places.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

bool has_nvrtc() {
  return run_tessera({"doctor"}).out.find("targets ") != std::string::npos;
}

std::vector<std::string> keys_in(const std::string& table) {
  std::vector<std::string> keys;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const std::string last = line.substr(line.find_last_of(' ') + 1);
    const bool is_key = last.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (last.size() == 16 && is_key) keys.push_back(last);
  }
  return keys;
}

}  // namespace

TEST_CASE("compile makes a bundle, and the cache can be looked into, checked and emptied",
          "[cli][cache]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string cache = folder.path("cache");
  const std::string bundle = folder.path("kernels.tsb");
  const ProgramResult made =
      run_tessera({"compile", "topk_gate", "--arch", "sm_80,sm_90a", "--out", bundle}, cache);
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  CHECK(made.out.find(" kernels for 2 targets, ") != std::string::npos);
  CHECK(
      run_tessera({"compile", "topk_gate", "--arch", "sm_80,sm_90a,sm_80", "--out", bundle}, cache)
          .out == made.out);

  const ProgramResult list = run_tessera({"cache", "ls"}, cache);
  const std::vector<std::string> keys = keys_in(list.out);
  REQUIRE(keys.size() >= 2);
  CHECK(list.out.find("topk_gate") != std::string::npos);
  CHECK(run_tessera({"cache", "du"}, cache).out.find("sm_80") != std::string::npos);
  CHECK(run_tessera({"cache", "verify"}, cache).out ==
        std::to_string(keys.size()) + " entries are whole, 0 damaged\n");
  CHECK(run_tessera({"cache", "prune"}, cache).out == "0 entries removed\n");

  const ProgramResult one = run_tessera({"cache", "explain", keys[0]}, cache);
  CHECK(one.out.find("compiler  NVRTC ") != std::string::npos);
  const ProgramResult two = run_tessera({"cache", "explain", keys[0], keys[1]}, cache);
  CHECK(two.exit_code == 0);
  CHECK(two.out.find("\ncompiler") == std::string::npos);  // alike, so not shown
  CHECK(two.out.find(keys[1]) != std::string::npos);
  const ProgramResult none = run_tessera({"cache", "explain", "xyz"}, cache);
  CHECK(none.exit_code == 2);
  CHECK(none.err ==
        "tessera: argument 'key' does not name one entry\n"
        "  expected  the first digits of a key of tessera cache ls\n"
        "  got       'xyz', which begins 0 keys\n");

  const ProgramResult files =
      run_tessera({"cache", "extract", keys[0], "--out", folder.path("")}, cache);
  CHECK(files.exit_code == 0);
  const std::string stem = folder.path("topk_gate-" + keys[0].substr(0, 8));
  CHECK(read_text(stem + ".cubin").substr(1, 3) == "ELF");
  CHECK(read_text(stem + ".cu").find("__global__") != std::string::npos);

  // A bundle is a cache folder of its own kind: what is in it is not compiled again.
  const ProgramResult doctor = run_tessera({"doctor"}, bundle);
  CHECK(doctor.out.find(bundle + ": trusted, a bundle") != std::string::npos);
  const ProgramResult again =
      run_tessera({"compile", "topk_gate", "--arch", "sm_80,sm_90a", "--out", folder.path("again")},
                  bundle, {"TESSERA_JIT=off"});
  CAPTURE(again.err);
  CHECK(again.exit_code == 0);
  CHECK(read_text(folder.path("again")).size() > 1000);
  const ProgramResult missing =
      run_tessera({"compile", "topk_gate", "--arch", "sm_120a", "--out", folder.path("never")},
                  bundle, {"TESSERA_JIT=off"});
  CHECK(missing.exit_code == 1);
  CHECK(
      missing.err.find("tessera: topk_gate: the kernel is in no bundle, and compiling is switched "
                       "off (TESSERA_JIT=off)\n  expected  a bundle with sm_120a, Spec ") == 0);

  CHECK(run_tessera({"cache", "clear"}, cache).out ==
        std::to_string(keys.size()) + " entries removed\n");
  CHECK(keys_in(run_tessera({"cache", "ls"}, cache).out).empty());
}

TEST_CASE("R22.10 a bundle of every op serves every op where no libnvrtc is", "[cli][cache]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string bundle = folder.path("kernels.tsb");
  const ProgramResult made = run_tessera({"compile", "all", "--out", bundle});
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  const std::vector<std::string> without = {"TESSERA_JIT=off",
                                            "TESSERA_NVRTC=/nowhere/libnvrtc.so"};
  const std::string again = folder.path("again.tsb");
  const ProgramResult served = run_tessera({"compile", "all", "--out", again}, bundle, without);
  CHECK(served.err.empty());
  CHECK(served.exit_code == 0);
  const auto count = [](const ProgramResult& result) {
    return result.out.substr(result.out.find(": "),
                             result.out.find(" kernels") - result.out.find(": "));
  };
  CHECK(count(served) == count(made));
  // What it served is a bundle as good as the first.
  CHECK(run_tessera({"compile", "all", "--out", folder.path("third.tsb")}, again, without)
            .exit_code == 0);
}

TEST_CASE("a process that finds all its kernels in the cache opens no libnvrtc", "[cli][cache]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string program = test::in_build("every_op_program");
  const std::vector<std::string> cache = {"TESSERA_CACHE_DIR=" + folder.path("cache")};
  const test::ChildResult cold = test::run_program({program}, cache);
  const test::ChildResult warm = test::run_program({program, "no-compiler"}, cache);
  CHECK(cold.exit_code == 0);
  CHECK(warm.exit_code == 0);
  CHECK(warm.output == cold.output);
  CHECK(cold.output.size() > 1000);
}

TEST_CASE("C01 keys and binaries do not depend on what a process made before", "[cli][cache]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const std::string program = test::in_build("every_op_program");
  const auto made = [&](const std::string& first, const std::string& second) {
    const test::ChildResult child =
        test::run_program({program, first, second}, {"TESSERA_CACHE=off"});
    CHECK(child.exit_code == 0);
    std::vector<std::string> lines;
    std::istringstream text(child.output);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  const std::vector<std::string> one_way = made("transpose", "topk_gate");
  CHECK(one_way.size() >= 4);
  CHECK(made("topk_gate", "transpose") == one_way);
}

TEST_CASE("prune and clear leave alone what is only read", "[cli][cache]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string own = folder.path("own"), layer = folder.path("layer");
  REQUIRE(run_tessera({"compile", "topk_gate", "--out", folder.path("b")}, layer).exit_code == 0);
  const size_t num_keys = keys_in(run_tessera({"cache", "ls"}, layer).out).size();
  REQUIRE(num_keys > 0);
  for (const char* word : {"prune", "clear"}) {
    const ProgramResult read_only = run_tessera({"cache", word}, layer, {"TESSERA_CACHE=ro"});
    CHECK(read_only.exit_code == 1);
    CHECK(read_only.err ==
          "tessera: no cache folder is written, and what is only read stays as it is\n"
          "  expected  TESSERA_CACHE=rw, and a folder first in TESSERA_CACHE_DIR\n"
          "  got       TESSERA_CACHE=ro\n");
    const ProgramResult layered = run_tessera({"cache", word}, own + ":" + layer);
    CHECK(layered.exit_code == 0);
    CHECK(layered.out == "0 entries removed\n");
    CHECK(run_tessera({"cache", word}, folder.path("b")).exit_code == 1);
  }
  CHECK(keys_in(run_tessera({"cache", "ls"}, layer).out).size() == num_keys);
}

TEST_CASE("a prune that cannot be made fails", "[cli][cache]") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("cache"));
  const std::string path = folder.path("cache/prune.lock");
  const int held = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  REQUIRE(::fcntl(held, F_OFD_SETLK, &lock) == 0);
  const ProgramResult result = run_tessera({"cache", "prune"}, folder.path("cache"));
  ::close(held);
  CHECK(result.exit_code == 1);
  CHECK(result.out.empty());
  CHECK(result.err == "tessera: " + folder.path("cache") +
                          ": another process is pruning it, or it cannot be written\n");
}

TEST_CASE("verify names a damaged entry and fails", "[cli][cache]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string cache = folder.path("cache");
  REQUIRE(run_tessera({"compile", "topk_gate", "--out", folder.path("b")}, cache).exit_code == 0);
  std::string entry;
  for (const auto& item : std::filesystem::recursive_directory_iterator(cache)) {
    if (item.path().extension() == ".tsk") entry = item.path().string();
  }
  REQUIRE_FALSE(entry.empty());
  std::filesystem::resize_file(entry, 1000);
  const ProgramResult result = run_tessera({"cache", "verify"}, cache);
  CHECK(result.exit_code == 1);
  CHECK(result.err == "tessera: " + entry + ": truncated\n");
}

TEST_CASE("what a program needed is recorded, and compiled for another target", "[cli][cache]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string record = folder.path("specs.jsonl");
  REQUIRE(run_tessera({"compile", "topk_gate", "--out", folder.path("first")}, "",
                      {"TESSERA_RECORD=" + record})
              .exit_code == 0);
  const ProgramResult made = run_tessera(
      {"compile", "--specs", record, "--arch", "sm_80", "--out", folder.path("second")});
  CAPTURE(made.err);
  CHECK(made.exit_code == 0);
  const ProgramResult again =
      run_tessera({"compile", "topk_gate", "--arch", "sm_80", "--out", folder.path("third")},
                  folder.path("second"), {"TESSERA_JIT=off"});
  CHECK(again.exit_code == 0);
  write_text(record, "{\"op\": 1}\n");
  const ProgramResult bad =
      run_tessera({"compile", "--specs", record, "--out", folder.path("never")});
  CHECK(bad.exit_code == 2);
  CHECK(bad.err.find("tessera: " + record + ":1 is not a recorded kernel\n") == 0);
}

TEST_CASE("a recorded kernel with clusters is left out for a target without them", "[cli][cache]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string record = folder.path("specs.jsonl");
  const std::string text = R"("text": "extern \"C\" __global__ void k() {}")";
  const std::string rest =
      R"("op": "k", "entry": "k", "code": "", "threads": 32, "shared_bytes": 0, "params": [], )"
      R"("waits_for_previous": false, "cooperative": false, "options": [], )" +
      text;
  write_text(record, "{\"cluster\": 2, " + rest + "}\n{\"cluster\": 1, " + rest + "}\n");
  const std::string out = folder.path("b");
  const ProgramResult both =
      run_tessera({"compile", "--specs", record, "--arch", "sm_80,sm_90a", "--out", out});
  CHECK(both.exit_code == 0);
  CHECK(both.out.find(out + ": 3 kernels for 2 targets, ") == 0);
  CHECK(both.err.find("tessera: k: the target has no clusters of blocks [CLUSTER_TARGET]\n") == 0);
  write_text(record, "{\"cluster\": 2, " + rest + "}\n");
  const ProgramResult none =
      run_tessera({"compile", "--specs", record, "--arch", "sm_80", "--out", out});
  CHECK(none.exit_code == 1);
  CHECK(none.err.find("tessera: no target can have any of the kernels\n") != std::string::npos);
}

TEST_CASE("wrong words for compile and cache are wrong usage", "[cli][cache]") {
  const TemporaryFolder folder;
  CHECK(run_tessera({"compile", "topk_gate"}).err.find("--out is required") != std::string::npos);
  const ProgramResult arch =
      run_tessera({"compile", "topk_gate", "--arch", "sm_90a,hopper", "--out", folder.path("x")});
  CHECK(arch.exit_code == 2);
  CHECK(arch.err ==
        "tessera: unknown target 'hopper'\n"
        "  expected  targets with commas between, such as sm_90a,sm_100a\n"
        "  got       sm_90a,hopper\n");
  CHECK(run_tessera({"compile", "topk_gate", "--arch", "", "--out", folder.path("x")}).err ==
        "tessera: no target\n"
        "  expected  targets with commas between, such as sm_90a,sm_100a\n"
        "  got       an empty list\n");
  for (const char* list : {"", "sm_90a,sm_80"}) {
    const std::string said = "tessera: unknown target '" + std::string(list) + "'\n";
    const ProgramResult cold = run_tessera({"bench", "topk_gate", "--cold", "--arch", list});
    CHECK(cold.exit_code == 2);
    CHECK(cold.err.find(said) == 0);
    if (*list == '\0') continue;  // check without a target compiles nothing
    const ProgramResult check = run_tessera({"check", "topk_gate", "--arch", list});
    CHECK(check.exit_code == 2);
    CHECK(check.err.find(said) == 0);
  }
  for (const char* target : {"sm_90f", "sm_80a", "sm_75"}) {
    const std::string said = "tessera: no kernel can be made for " + std::string(target) + "\n";
    const ProgramResult list =
        run_tessera({"compile", "topk_gate", "--arch", target, "--out", folder.path("x")});
    CHECK(list.exit_code == 2);
    CHECK(list.err.find(said) == 0);
    const ProgramResult show =
        run_tessera({"show", "topk_gate", "--stage", "ptx", "--arch", target});
    CHECK(show.exit_code == 2);
    CHECK(show.err.find(said) == 0);
  }
  CHECK(run_tessera({"cache"}).exit_code == 2);
  CHECK(run_tessera({"cache", "eat"}).exit_code == 2);
}

}  // namespace tessera::tests
