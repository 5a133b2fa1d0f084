#include "tests/tools/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstring>
#include <stdexcept>

#include "tests/support/places.h"
#include "tests/tools/temporary_folder.h"

extern char** environ;

namespace tessera::tests {
namespace {

ProgramResult run(const std::string& program, const std::vector<std::string>& words,
                  const std::string& cache, const std::vector<std::string>& environment) {
  const TemporaryFolder folder;
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), words.begin(), words.end());
  std::vector<std::string> variables = environment;
  variables.push_back(cache.empty() ? "TESSERA_CACHE=off" : "TESSERA_CACHE_DIR=" + cache);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::strncmp(*variable, "TESSERA_CACHE", 13) != 0) variables.push_back(*variable);
  }
  std::vector<char*> argv, envp;
  for (std::string& word : arguments) argv.push_back(word.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string out = folder.path("out"), err = folder.path("err");
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), flags, 0600);
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + program);
  int status = 0;
  ::waitpid(child, &status, 0);
  ProgramResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_text(out);
  result.err = read_text(err);
  return result;
}

}  // namespace

ProgramResult run_tessera(const std::vector<std::string>& words, const std::string& cache,
                          const std::vector<std::string>& environment) {
  return run(test::in_build("tools/tessera"), words, cache, environment);
}

ProgramResult run_own_program(const std::vector<std::string>& words, const std::string& cache,
                              const std::vector<std::string>& environment) {
  return run(test::in_build("own_kernels_program"), words, cache, environment);
}

bool has_nvrtc() {
  return run_tessera({"doctor"}).out.find("targets ") != std::string::npos;
}

}  // namespace tessera::tests
