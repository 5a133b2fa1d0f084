// tessera compile --specs: kernels from recordings. No GPU needed; NVRTC is.

#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <string>

#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

// A line of a recording with one member changed.
std::string recorded(const std::string& member, const std::string& value) {
  std::map<std::string, std::string> members = {
      {"op", "\"k\""},
      {"entry", "\"k\""},
      {"code", "\"\""},
      {"threads", "32"},
      {"cluster", "1"},
      {"shared_bytes", "0"},
      {"params", "[]"},
      {"options", "[]"},
      {"waits_for_previous", "false"},
      {"cooperative", "false"},
      {"text", "\"extern \\\"C\\\" __global__ void k() {}\""}};
  members[member] = value;
  std::string line;
  for (const auto& [name, text] : members) {
    line += (line.empty() ? "{\"" : ", \"") + name + "\": " + text;
  }
  return line + "}\n";
}

}  // namespace

TEST_CASE("what a program needed is recorded, and compiled for another target",
          "[cli][cache][slow]") {
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

TEST_CASE("compile refuses a recording with impossible values, names the line, writes no bundle",
          "[cli][cache]") {
  const TemporaryFolder folder;
  const std::string record = folder.path("specs.jsonl"), out = folder.path("b");
  const auto said = [&](const std::string& member, const std::string& value) {
    write_text(record, recorded("op", "\"k\"") + recorded(member, value));
    const ProgramResult result = run_tessera({"compile", "--specs", record, "--out", out});
    CHECK(result.exit_code == 2);
    CHECK_FALSE(std::filesystem::exists(out));
    CHECK(result.err.find("json.exception") == std::string::npos);
    return result.err;
  };
  const std::string what = "tessera: " + record + ":2 is not a recorded kernel\n";
  CHECK(said("threads", "-1") == what + "  expected  threads from 1 to 1024\n  got       -1\n");
  CHECK(said("threads", "1.5").find("  got       1.5\n") != std::string::npos);
  CHECK(said("cluster", "1000000").find("cluster from 1 to 16") != std::string::npos);
  CHECK(said("shared_bytes", "9223372036854775808").find(what) == 0);
  CHECK(said("text", "\"\"").find("  got       0 bytes\n") != std::string::npos);
  CHECK(said("spec", "[-1]").find("bytes from 0 to 255 in 'spec'") != std::string::npos);
  CHECK(said("op", "{\"a\": [[[[[[1]]]]]]}").find(what) == 0);
}

TEST_CASE("a recording that is a pipe or a device is refused and not read for ever",
          "[cli][cache]") {
  const TemporaryFolder folder;
  const std::string pipe = folder.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    const ProgramResult result =
        run_tessera({"compile", "--specs", path, "--out", folder.path("b")});
    CHECK(result.exit_code == 2);
    CHECK(result.err == "tessera: " + path +
                            " holds no recorded kernels\n"
                            "  expected  a file written by TESSERA_RECORD\n"
                            "  got       a file that is not a regular file\n");
  }
}

TEST_CASE("an edited recording does not put its text into the user's cache", "[cli][cache][slow]") {
  if (!has_nvrtc()) TESSERA_SKIP("no NVRTC");
  const TemporaryFolder folder;
  const std::string record = folder.path("specs.jsonl"), cache = folder.path("cache");
  REQUIRE(run_tessera({"compile", "transpose", "--out", folder.path("first")}, "",
                      {"TESSERA_RECORD=" + record})
              .exit_code == 0);
  std::string text = read_text(record);
  const std::string begin = ") {\\n";
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    text.replace(at, begin.size(), ") {  // EVIL\\n");
  }
  REQUIRE(text.find("EVIL") != std::string::npos);
  write_text(record, text);
  const ProgramResult evil =
      run_tessera({"compile", "--specs", record, "--out", folder.path("evil")}, cache);
  CAPTURE(evil.err);
  CHECK(evil.exit_code == 0);
  CHECK(read_text(folder.path("evil")).find("EVIL") != std::string::npos);
  REQUIRE(run_tessera({"compile", "transpose", "--out", folder.path("honest")}, cache).exit_code ==
          0);
  CHECK(read_text(folder.path("honest")).find("EVIL") == std::string::npos);
  CHECK(read_text(folder.path("honest")) == read_text(folder.path("first")));
  // Where both are wanted, this build's text is the one that is kept.
  REQUIRE(
      run_tessera({"compile", "transpose", "--specs", record, "--out", folder.path("both")}, cache)
          .exit_code == 0);
  CHECK(read_text(folder.path("both")) == read_text(folder.path("first")));
}

}  // namespace tessera::tests
