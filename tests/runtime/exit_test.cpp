// A process ends quietly whatever of Tessera is still loaded: as part of a program, of a plugin that
// is unloaded, of a Python interpreter. On the GPU where there is one, else on the executor.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using tessera::test::ScratchFolder;

namespace {

struct Ended {
  int status = -1;
  std::string output;  // stdout and stderr
};

Ended run(const std::vector<std::string>& words, const std::string& cache) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<std::string> variables = {"TESSERA_CACHE_DIR=" + cache};
  for (char** entry = environ; *entry; ++entry) {
    if (std::string(*entry).rfind("TESSERA_", 0) != 0) variables.emplace_back(*entry);
  }
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  pid_t child = -1;
  const int spawned =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Ended ended;
  if (spawned == 0) {
    std::array<char, 4096> bytes{};
    for (ssize_t count = 0; (count = read(ends[0], bytes.data(), bytes.size())) > 0;) {
      ended.output.append(bytes.data(), static_cast<size_t>(count));
    }
    REQUIRE(waitpid(child, &ended.status, 0) == child);
  }
  close(ends[0]);
  return ended;
}

const std::string kPlugin = TESSERA_BINARY_DIR "/libtessera_exit_plugin.so";
const std::string kProgram = TESSERA_BINARY_DIR "/exit_program";

}  // namespace

TEST_CASE("R22.19 a program ends with kernels loaded") {
  const ScratchFolder scratch;
  const Ended ended = run({kProgram}, scratch / "cache");
  CHECK(ended.output == "");
  CHECK(ended.status == 0);
}

TEST_CASE("R22.19 a program unloads a plugin that has kernels loaded, and ends") {
  const ScratchFolder scratch;
  const Ended ended = run({kProgram, kPlugin}, scratch / "cache");
  CHECK(ended.output == "");
  CHECK(ended.status == 0);
}

TEST_CASE("R22.19 a Python interpreter ends with kernels loaded") {
  const ScratchFolder scratch;
  const Ended ended = run({"python3", "-c",
                           "import ctypes, sys\n"
                           "sys.exit(ctypes.CDLL(sys.argv[1]).tessera_exit_plugin_run())\n",
                           kPlugin},
                          scratch / "cache");
  if (ended.status == 127 << 8 || ended.status == -1) TESSERA_SKIP("no python3");
  CHECK(ended.output == "");
  CHECK(ended.status == 0);
}
