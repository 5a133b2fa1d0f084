#include "tests/support/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

extern char** environ;

namespace tessera::test {
namespace {

std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view variable = *entry;
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    const bool is_given =
        std::any_of(variables.begin(), variables.end(),
                    [&](const std::string& given) { return given.rfind(name, 0) == 0; });
    const bool is_ours = name.rfind("TESSERA_", 0) == 0 && name != "TESSERA_NVRTC=";
    if (!is_given && !is_ours) all.emplace_back(variable);
  }
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ChildResult run_program(const std::vector<std::string>& words,
                        const std::vector<std::string>& variables) {
  ChildResult result;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return result;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<std::string> arguments = words;
  std::vector<std::string> environment = environment_with(variables);
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> envp = pointers_to(environment);
  pid_t child = -1;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error == 0) {
    std::array<char, 4096> bytes{};
    for (ssize_t count = 0; (count = read(ends[0], bytes.data(), bytes.size())) > 0;) {
      result.output.append(bytes.data(), static_cast<size_t>(count));
    }
    int status = -1;
    waitpid(child, &status, 0);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  } else {
    result.exit_code = 127;
  }
  close(ends[0]);
  return result;
}

}  // namespace tessera::test
