#include "tools/lib/images/disassemble.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "dsl/base/error.h"
#include "tools/lib/atomic_file.h"
#include "tools/lib/files/private_folder.h"

extern char** environ;

namespace tessera::tools {
namespace {

struct Tool {
  std::string path;
  std::vector<std::string> options;  // before the file
};

Tool find_tool() {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* home = std::getenv(variable);
    if (home != nullptr && *home != '\0') folders.push_back(std::string(home) + "/bin");
  }
  folders.push_back("/usr/local/cuda/bin");
  const char* path = std::getenv("PATH");
  std::istringstream rest(path == nullptr ? "" : path);
  for (std::string folder; std::getline(rest, folder, ':');) folders.push_back(folder);

  const std::pair<const char*, std::vector<std::string>> tools[] = {{"nvdisasm", {"-c"}},
                                                                    {"cuobjdump", {"-sass"}}};
  for (const auto& [name, options] : tools) {
    for (const std::string& folder : folders) {
      const std::string candidate = folder + "/" + name;
      if (::access(candidate.c_str(), X_OK) == 0) return {candidate, options};
    }
  }
  throw Error({.kind = ErrorKind::unsupported,
               .what = "no disassembler for SASS",
               .argument = "stage",
               .expected = "nvdisasm or cuobjdump of the CUDA toolkit",
               .got = fmt::format("neither in {}", fmt::join(folders, ", ")),
               .hint = "install the CUDA toolkit's package cuda-nvdisasm, or the wheel "
                       "nvidia-cuda-nvcc, and put its bin folder into PATH"});
}

/// The output of a program, stdout and stderr together; no shell in between.
std::string output_of(const std::vector<std::string>& words, int& status) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) internal_error("pipe() failed");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  std::array<char, 65536> buffer{};
  ssize_t got = 0;
  while (error == 0 && (got = ::read(ends[0], buffer.data(), buffer.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  ::close(ends[0]);
  status = error;
  if (error == 0) {
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  } else {
    text = std::strerror(error);
  }
  return text;
}

}  // namespace

std::string disassemble(const std::string& cubin) {
  const Tool tool = find_tool();
  const PrivateFolder folder;
  AtomicFile file(folder.file("kernel.cubin"));
  file.write(cubin);
  file.commit();
  std::vector<std::string> words = {tool.path};
  words.insert(words.end(), tool.options.begin(), tool.options.end());
  words.push_back(folder.file("kernel.cubin"));
  int status = 0;
  std::string text = output_of(words, status);
  if (status == 0) return text;
  throw Error({.kind = ErrorKind::load,
               .what = fmt::format("{} failed", tool.path),
               .got = text.substr(0, 1000)});
}

}  // namespace tessera::tools
